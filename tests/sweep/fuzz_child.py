"""Feed a target inputs that reach new code until the time is over or one fails: a program, because atheris ends its process.

    python tests/sweep/fuzz_child.py TARGET --into DIR --seconds S [--module sweep.fuzz_targets]
    python tests/sweep/fuzz_child.py TARGET --into DIR --repeat FILE

DIR/corpus keeps the inputs that reached new code, and a later run starts from them. An input that fails is saved as DIR/crash-...,
DIR/timeout-... or DIR/oom-..., and repeated by the second command. It fails if it raises another error than the target documents, takes
longer than the deadline, ends the process, or takes more memory than the limit.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
DEADLINE, MOST_MEMORY, LONGEST = 60, 2**31, 2**14  # seconds, bytes of memory and of an input
INSTRUMENTED = ("bulksample", "yaml")  # the Python whose branches are counted
ADDRESSES = 2**34  # bytes of addresses, so that one allocation cannot exhaust the machine between two looks at its memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target")
    parser.add_argument("--module", default="sweep.fuzz_targets", help="a module with TARGETS")
    parser.add_argument("--into", type=Path, required=True, help="the folder for the corpus and for inputs that fail")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1, help="seed of the search")
    parser.add_argument("--deadline", type=int, default=DEADLINE, help="seconds that an input may take")
    parser.add_argument("--repeat", type=Path, help="one input to repeat, instead of a search")
    options = parser.parse_args()
    sys.path[:1] = [str(ROOT), str(ROOT / "tests")]  # the package of this checkout, even if another one is installed
    import atheris

    with TemporaryDirectory(prefix="bulksample-fuzz-") as place:
        os.environ["XDG_CACHE_HOME"] = place
        with atheris.instrument_imports(include=list(INSTRUMENTED)):
            for name in INSTRUMENTED:
                import_module(name)
            target = import_module(options.module).TARGETS[options.target]
        attempt = target.made(Path(place))

        def once(data: bytes) -> None:
            with suppress(target.refusals):
                attempt(data)

        if options.repeat:
            once(options.repeat.read_bytes())
            return
        corpus = options.into / "corpus"
        corpus.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(target.seeds()):
            (corpus / f"seed-{number}").write_bytes(seed)
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
        flags = {
            "max_total_time": options.seconds, "timeout": options.deadline, "rss_limit_mb": MOST_MEMORY >> 20, "max_len": LONGEST,
            "artifact_prefix": f"{options.into}/", "print_final_stats": 1, "seed": options.seed,
        }  # fmt: skip
        atheris.Setup([sys.argv[0], *(f"-{name}={value}" for name, value in flags.items()), str(corpus)], once)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
