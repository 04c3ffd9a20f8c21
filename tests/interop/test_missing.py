"""A missing library is named in one line, and a library that is not used is not imported."""

import subprocess
import sys

import pytest
from waiting import PATIENCE


def python(program):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)


@pytest.mark.parametrize("missing", ["torch", "torch_geometric"])
def test_one_line_says_what_to_install(missing):
    done = python(f"import sys; sys.modules[{missing!r}] = None\nfrom bulksample.interop.pyg import NeighborLoader")
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"ImportError: {missing} is needed here")
    assert "use pip install 'bulksample[pyg]'" in last


def test_the_package_is_imported_without_them():
    done = python(
        "import sys, bulksample, bulksample.interop\nprint(sorted(m for m in sys.modules if m in ('torch', 'torch_geometric', 'dgl')))"
    )
    assert done.stdout.strip() == "[]"


def test_dgl_loaders_do_not_import_dgl_until_one_is_made():
    done = python(
        "import sys; sys.modules['dgl'] = None\n"
        "from bulksample.interop.dgl import NeighborSampler; print(NeighborSampler([2]).sampler.fanouts)"
    )
    assert done.stdout.strip() == "(2,)"
