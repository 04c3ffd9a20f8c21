"""A damaged file raises `DataError` and nothing else, and ends a command with exit code 65.

Bytes are damaged at random: the answer is a `DataError` or a valid graph, never another exception and never a signal.
The cases with a name are in `test_malformed_stores.py` and `test_malformed_files.py`.
"""

import bz2
import gzip
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
from functools import partial

import numpy as np
import test_malformed_files as foreign
import test_malformed_stores as native
from samples import UNPICKLED, Bomb, as_arrays, edit_manifest, put, replace_array, small_graph
from sweeps import SWEEP, sweep
from test_hetero_files import ARRAYS as HETERO
from test_ogb import gz, write_csv

from bulksample import DataError
from bulksample.data import edgelist, matrixmarket, npz, store

DENSE, THIN = as_arrays(small_graph(weighted=False)), as_arrays(small_graph(weighted=False, sparse=True))


def mutated(data, rng):
    """One to three bytes flipped, replaced, removed or repeated."""
    data = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        place = int(rng.integers(0, max(len(data), 1)))
        what = rng.integers(0, 4)
        if what == 0 and data:
            data[place] ^= 1 << int(rng.integers(0, 8))
        elif what == 1 and data:
            data[place] = int(rng.integers(0, 256))
        elif what == 2:
            del data[place : place + int(rng.integers(1, 9))]
        else:
            data[place:place] = data[place : place + int(rng.integers(1, 9))]
    return bytes(data)


def survives(read, *arguments):
    """1 where reading refuses, 0 where it gives a graph, which must be valid then."""
    try:
        read(*arguments).validate()
    except DataError as error:
        assert str(error)  # noqa: PT017
        return 1
    return 0


def sources(tmp_path):
    """(reader, file) of one whole file for every format of one file."""
    np.savez(tmp_path / "g.npz", **DENSE)
    np.savez_compressed(tmp_path / "c.npz", **THIN)
    (tmp_path / "e.txt").write_text("# head\n1\t2\t0.5\n2\t3\t1e2\n\n10\t1\t3\n")
    (tmp_path / "z.txt.gz").write_bytes(gzip.compress(b"1 2\n2 3\n17 4\n" * 5))
    dated = 'from;to;weight;date\n1;2;0.5;2009-03-29\n2;3;1;2009-03-30T12:00\n"10";1;3;2010-01-01 00:00:00.5\n'
    (tmp_path / "d.csv.xz").write_bytes(lzma.compress(dated.encode()))
    (tmp_path / "d.csv").write_text(dated)
    (tmp_path / "t.tsv").write_text("# made\n1\t2\t-7\n2\t3\t8\n")
    (tmp_path / "n.csv.bz2").write_bytes(bz2.compress(b"ann,x,bob\nbob,,eve\n" * 3))
    (tmp_path / "m.mtx").write_text(f"{foreign.BANNER} real symmetric\n% made by a test\n4 4 3\n2 1 0.5\n3 1 2\n4 4 1e-3\n")
    np.savez(tmp_path / "h.npz", **HETERO)
    names = {
        "g.npz": npz.read,
        "c.npz": npz.read,
        "h.npz": npz.read,
        "e.txt": edgelist.read,
        "z.txt.gz": edgelist.read,
        "d.csv.xz": partial(edgelist.read, time_unit="ms"),
        "d.csv": partial(edgelist.read, time_unit="ms"),
        "t.tsv": partial(edgelist.read, columns="source,target,time"),
        "n.csv.bz2": partial(edgelist.read, columns="source,-,target", ids="text"),
        "m.mtx": matrixmarket.read,
    }
    return [(read, tmp_path / name) for name, read in names.items()]


@sweep(("turn", "rounds"), [(0, 60), *((turn, 430) for turn in range(1, 8))])
def test_random_damage_to_files(tmp_path, turn, rounds):
    rng = np.random.default_rng(7 + turn)
    refusals = 0
    for read, path in sources(tmp_path):
        whole = path.read_bytes()
        for _ in range(rounds):
            path.write_bytes(mutated(whole, rng))
            refusals += survives(read, path)
    assert refusals > 2 * rounds


@sweep(("turn", "rounds"), [(0, 15), *((turn, 22 * SWEEP) for turn in range(1, 8))])
def test_random_damage_to_stores_whose_sums_agree(stores, tmp_path, monkeypatch, turn, rounds):
    """Damage under correct checksums, as a faulty or malicious writer could sign it."""
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)  # remembers no sums, which would be synced in each round
    rng = np.random.default_rng(8 + turn)
    refusals = total = 0
    for kind in ("dense", "sparse"):
        folder = shutil.copytree(stores / kind, tmp_path / kind)
        text = (folder / "manifest.json").read_text()
        for role, part in json.loads(text)["arrays"].items():
            whole = (folder / part["file"]).read_bytes()
            for _ in range(rounds):
                replace_array(folder, role, mutated(whole, rng))
                refusals += survives(store.load, folder, True, "full")
                total += 1
            (folder / part["file"]).write_bytes(whole)
            (folder / "manifest.json").write_text(text)
    assert refusals > total / 2


# --- the command line -----------------------------------------------------------------------------------------

_RUN = """
import contextlib, io, json, sys
from bulksample.cli import main
results = []
for arguments in json.loads(sys.stdin.read()):
    sys.argv = ["bulksample", *arguments]
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            main()
        code = 0
    except SystemExit as leave:
        code = leave.code
    results.append([code, errors.getvalue()])
print(json.dumps(results))
"""


def test_the_command_line_leaves_with_65_and_the_name(stores, tmp_path):
    damaged = {}
    for case, file in (("flipped", "labels.npy"), ("short", "indices.npy"), ("gone", "indptr.npy")):
        damaged[case] = folder = shutil.copytree(stores / "dense", tmp_path / case)
        data = bytearray((folder / file).read_bytes())
        data[-1] ^= 1
        (folder / file).write_bytes(data if case == "flipped" else data[:-4])
    (damaged["gone"] / "indptr.npy").unlink()
    edited = shutil.copytree(stores / "dense", tmp_path / "edited")
    edit_manifest(edited, put("version", 9))
    (tmp_path / "bad.txt").write_text("1 2\n1 x\n")
    (tmp_path / "bad.mtx").write_text("hello\n")
    np.savez(tmp_path / "bad.npz", **{**DENSE, "indices": DENSE["indices"] + 7})
    np.savez(tmp_path / "evil.npz", **{**DENSE, "y": np.array([Bomb()])})
    root = write_csv(tmp_path / "ogbn_arxiv")
    gz(root / "raw/edge.csv.gz", [[0, 99]] * 5)
    out = str(tmp_path / "out")
    commands = [
        (["data", "verify", str(damaged["flipped"])], r"labels\.npy: is damaged: sha256 expected \w{64}, found \w{64}"),
        (["data", "verify", str(damaged["short"])], r"indices\.npy: is truncated"),
        (["data", "info", str(damaged["gone"])], r"indptr\.npy: cannot be read"),
        (["data", "info", str(edited)], "got version 9; this release reads 1"),
        (["data", "info", str(tmp_path / "nowhere")], "there is no such folder"),
        (["data", "import", "edgelist", str(tmp_path / "bad.txt"), "-o", out], r"bad\.txt: line 2: 'x'"),
        (["data", "import", "mtx", str(tmp_path / "bad.mtx"), "-o", out], r"bad\.mtx: line 1 is no header"),
        (["data", "import", "npz", str(tmp_path / "bad.npz"), "-o", out], "names column"),
        (["data", "import", "npz", str(tmp_path / "evil.npz"), "-o", out], "y: holds '.O'"),
        (["data", "import", "ogb", str(root), "-o", out], "edge 0 names target 99"),
        (["sample", str(damaged["short"]), "--fanouts", "2"], r"indices\.npy: is truncated"),
    ]
    ran = subprocess.run(
        [sys.executable, "-c", _RUN], input=json.dumps([arguments for arguments, _ in commands]), capture_output=True, text=True, check=True
    )
    results = json.loads(ran.stdout.splitlines()[-1])
    for (arguments, names), (code, message) in zip(commands, results, strict=True):
        assert code == 65, (arguments, message)
        assert re.search(rf"^bulksample: DataError: .*{names}", message), (arguments, message)
        assert "Traceback" not in message
    assert not os.path.exists(out)
    assert not UNPICKLED.exists()


def test_python_dash_m_leaves_with_65(stores, tmp_path):
    folder = shutil.copytree(stores / "dense", tmp_path / "g")
    os.truncate(folder / "weights.npy", 100)
    ran = subprocess.run([sys.executable, "-m", "bulksample", "data", "info", str(folder)], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (65, "")
    assert re.fullmatch(r"bulksample: DataError: g/weights\.npy: is truncated: the manifest says \d+ bytes, the file has 100\n", ran.stderr)


def test_there_are_enough_of_them():
    tables = (
        native.MANIFESTS, native.TEXTS, native.HEADERS, native.OTHERS, native.CONTENTS, native.GRAPHS,
        foreign.NPZ, foreign.ARCHIVES, foreign.LISTS, foreign.MATRICES, foreign.CSVS, foreign.BINARIES,
    )  # fmt: skip
    assert sum(map(len, tables)) + len(native.FILES) * len(native.ROLES) >= 400
