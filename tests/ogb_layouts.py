"""Sets of OGB in the layout of ogbn-mag, written as OGB writes them."""

import gzip

import numpy as np

COUNTS = {"paper": 4, "author": 3, "institution": 2}
AUTHORED = np.array([[0, 1, 2, 0], [0, 0, 3, 2]])
CITES = np.array([[1, 1, 3], [0, 0, 1]])
YEARS = [2010, 2012, 2011, 2019]


def write_mag(root, **changes):
    """A set of three types as OGB writes it; `changes` replace the rows of a file, or leave it out."""
    files = {
        "raw/num-node-dict": [list(COUNTS), list(COUNTS.values())],
        "raw/triplet-type-list": [["author", "writes", "paper"], ["paper", "cites", "paper"]],
        "raw/nodetype-has-feat": [list(COUNTS), [True, False, False]],
        "raw/nodetype-has-label": [list(COUNTS), [True, False, False]],
        "raw/relations/author___writes___paper/edge": AUTHORED.T,
        "raw/relations/author___writes___paper/num-edge-list": [4],
        "raw/relations/author___writes___paper/edge_reltype": [[0]] * 4,
        "raw/relations/paper___cites___paper/edge": CITES.T,
        "raw/relations/paper___cites___paper/num-edge-list": [3],
        "raw/relations/paper___cites___paper/edge_reltype": [[1]] * 3,
        "raw/node-feat/paper/node-feat": [[0.5, -1.25], [1, 2], [3e-7, 4], [5, 6]],
        "raw/node-feat/paper/node_year": YEARS,
        "raw/node-label/paper/node-label": [3, 0, 1, 3],
        "split/time/nodetype-has-split": [list(COUNTS), [True, False, False]],
        "split/time/paper/train": [0, 2], "split/time/paper/valid": [1], "split/time/paper/test": [3],
    }  # fmt: skip
    for name, rows in {**files, **changes}.items():
        if rows is not None:
            gz(root / f"{name}.csv.gz", rows)
    return root


def gz(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(",".join(str(cell) for cell in np.atleast_1d(row)) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
