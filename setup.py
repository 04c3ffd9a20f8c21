"""Builds `bulksample._native` from csrc/. Without a compiler the install still succeeds, and `bulksample info` says why.

`python setup.py build_ext` itself exits with 1 where nothing could be built.
"""

import os
import runpy
import sys
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

try:
    from pybind11.setup_helpers import ParallelCompile, Pybind11Extension

    ParallelCompile("NPY_NUM_BUILD_JOBS", default=os.cpu_count() or 1).install()
except ImportError:  # an environment built by hand, without isolation
    Pybind11Extension = None

ROOT = Path(__file__).parent
REASON = "native_missing.txt"  # read by bulksample.backends.native


class OptionalBuild(build_ext):
    """Compile the extension; where that fails, leave the reason in the package instead."""

    def run(self):
        try:
            if Pybind11Extension is None:
                raise ModuleNotFoundError("pybind11 is not installed; an isolated build brings it")
            super().run()
        except Exception as error:  # any failure of a foreign compiler: the reference back end serves
            self.explain(f"{type(error).__name__}: {error}")
            if "build_ext" in sys.argv:  # asked for by name, not as a part of an install
                sys.exit(1)
        else:
            self.reason_file().unlink(missing_ok=True)

    def reason_file(self):
        package = ROOT / "bulksample" if self.inplace or getattr(self, "editable_mode", False) else Path(self.build_lib) / "bulksample"
        return package / REASON

    def explain(self, reason):
        self.reason_file().parent.mkdir(parents=True, exist_ok=True)
        self.reason_file().write_text(f"the extension could not be compiled at install time ({reason})\n")
        print(f"bulksample: no native back end: {reason}", file=sys.stderr)

    def get_outputs(self):
        return [path for path in super().get_outputs() if Path(path).exists()]

    def copy_extensions_to_source(self):
        built = [e for e in self.extensions if (Path(self.build_lib) / self.get_ext_filename(e.name)).exists()]
        if len(built) == len(self.extensions):
            super().copy_extensions_to_source()


def files(pattern):
    """Return the files of csrc/ that match a pattern."""
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "csrc").glob(pattern))


def extensions():
    """Describe `bulksample._native`, which knows the digest of the sources that it was compiled from."""
    sources = runpy.run_path(str(ROOT / "bulksample" / "backends" / "sources.py"))  # the package itself needs numpy
    if Pybind11Extension is None:
        return [Extension("bulksample._native", [])]  # so that build_ext runs, and says what is missing
    apple = sys.platform == "darwin"  # its compiler has OpenMP, but no library of it: brew install libomp
    flags = ["-O3", *(["-Xpreprocessor"] if apple else []), "-fopenmp", "-fvisibility=hidden", "-Wall", "-Wextra"]
    return [
        Pybind11Extension(
            "bulksample._native",
            files("unit_*.cpp"),
            include_dirs=["csrc"],
            depends=[*files("*.h"), *files("native*.cpp")],
            define_macros=[("BULKSAMPLE_SOURCES", f'"{sources["native_digest"](ROOT / "csrc")}"')],
            cxx_std=17,
            extra_compile_args=flags,
            extra_link_args=["-lomp" if apple else "-fopenmp"],
        )
    ]


# csrc/ stays at the top, yet its headers and kernels ship inside the package: they are compiled on the user's machine, too
packages = {"packages": [*find_packages(include=["bulksample*"]), "bulksample.csrc"], "package_dir": {"bulksample.csrc": "csrc"}}

data = {"bulksample.csrc": ["*.h", "*.cu"], "bulksample": ["py.typed"], "bulksample.report": ["*.html"]}

setup(**packages, package_data=data, ext_modules=extensions(), cmdclass={"build_ext": OptionalBuild})
