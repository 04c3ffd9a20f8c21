"""Memory of an import in the layout of ogbn-papers100M: measurements agree with a formula, which stays below 24 GiB."""

import gzip
import os
import subprocess
import sys

import numpy as np
import pytest
from launch import ROOT
from oracles.ogb_memory import peak_bytes
from waiting import PATIENCE

from bulksample.data.edges import BUCKET

PAPERS = 111_059_956, 1_615_685_872  # vertices and edges, of the OGB paper, table 1
IMPORT = """
import sys
from bulksample.cli import main
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")), file=sys.stderr)
"""


def write(root, n, m, compressed, width):
    """A set of random edges in files as OGB writes them; features of 64 numbers, and of `width` numbers an edge; labels for a tenth."""
    (root / "raw").mkdir(parents=True)
    draw = np.random.default_rng(0)
    of_edges = {"edge_feat": np.ones((m, width), np.float32)} if width else {}
    (np.savez_compressed if compressed else np.savez)(
        root / "raw" / "data.npz", edge_index=draw.integers(0, n, (2, m)), num_nodes_list=np.array([n]), num_edges_list=np.array([m]),
        node_feat=np.ones((n, 1), np.float32) * draw.random(64, np.float32), node_year=draw.integers(2000, 2020, (n, 1)), **of_edges,
    )  # fmt: skip
    labels = np.where(draw.random((n, 1)) < 0.9, np.nan, 7).astype(np.float32)
    np.savez_compressed(root / "raw" / "node-label.npz", node_label=labels)
    (root / "split" / "time").mkdir(parents=True)
    for name, members in zip(("train", "valid", "test"), np.array_split(np.flatnonzero(labels[:, 0] == 7), 3), strict=True):
        (root / "split" / "time" / f"{name}.csv.gz").write_bytes(gzip.compress("\n".join(map(str, members)).encode() + b"\n", 1))


def peak(folder, n, m, compressed=False, options=(), width=0):
    """The most memory that the import has held, in bytes."""
    write(folder / "ogbn_papers100M", n, m, compressed, width)
    words = ["data", "import", "ogb", folder / "ogbn_papers100M", "-o", folder / "o", *options]
    done = subprocess.run([sys.executable, "-c", IMPORT, *map(str, words)], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
                          capture_output=True, text=True, timeout=PATIENCE)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return 1024 * int(done.stderr.splitlines()[-1])


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak is read from /proc")
@pytest.mark.parametrize(("n", "m", "compressed", "options", "width"), [
    (500_000, 16_000_000, False, (), 0), (500_000, 8_000_000, True, ("--undirected",), 0), (3_000_000, 4_000_000, True, (), 0),
    (500_000, 2_000_000, False, ("--undirected",), 32), (500_000, 48_000_000, False, (), 0),
])  # fmt: skip
def test_memory_is_what_the_formula_says(tmp_path, n, m, compressed, options, width):
    """The sizes are such that 4 bytes more of an edge or 24 of a vertex would show; 64 MB are for pieces that are read at once.

    The last graph has more edges than are sorted in memory.
    """
    alone = peak(tmp_path / "alone", 1000, 1000)
    most = peak(tmp_path / "large", n, m, compressed, options, width) - alone
    pieces = 64e6 if not width else 128e6  # more of them at the time when the features of edges are there, of 512 MB
    assert most <= peak_bytes(n, m, bool(options), width) - peak_bytes(0, 0, False) + pieces
    assert most > 8 * min(m, BUCKET)


@pytest.mark.parametrize("undirected", [False, True])
def test_papers100m_fits_24_gib(undirected):
    assert 4 * PAPERS[1] * (1 + undirected) < peak_bytes(*PAPERS, undirected) < 24 * 2**30
