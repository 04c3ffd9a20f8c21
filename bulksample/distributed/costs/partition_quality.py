"""What a partition costs those who train on its parts alone: edges that are lost, labels out of proportion, vertices left alone.

Parts of few cut edges keep neighbourhoods and differ from each other; random parts are alike and lose neighbours. A method that
averages models of parts pays for both, so they are told before it starts.
"""

from __future__ import annotations

import numpy as np

from ...sparse import CSR


def tradeoff(adjacency: CSR, labels: np.ndarray, assignment: np.ndarray, parts: int) -> dict[str, float]:
    """The three shares of a partition.

    Parameters
    ----------
    labels : int64, shape (n,)
        -1 where there is none.
    assignment : int32, shape (n,)
        The part of each vertex.

    Returns
    -------
    dict
        ``edges_kept``: those within a part, of all; ``label_distance``: total variation, 1/2 sum over classes of
        |share in the part - share in the graph|, averaged over parts that have labels; ``isolated``: vertices that had
        in-neighbours and have none in their part, of all vertices. A random partition is expected to keep 1 / parts of
        the edges and to isolate the mean of (1 - 1 / parts)**degree over vertices of positive degree.
    """
    row = adjacency.row_of_entry()
    kept = assignment[row] == assignment[adjacency.indices]
    alone = (adjacency.degrees > 0) & (np.bincount(row[kept], minlength=len(assignment)) == 0)
    told = labels >= 0
    counts = np.zeros((parts, int(labels.max(initial=0)) + 1))
    np.add.at(counts, (assignment[told], labels[told]), 1)
    some = counts.sum(1) > 0
    shares = counts[some] / counts[some].sum(1, keepdims=True)
    whole = counts.sum(0) / max(1.0, counts.sum())
    return {
        "edges_kept": float(kept.mean()) if len(kept) else 1.0,
        "label_distance": float(np.abs(shares - whole).sum(1).mean() / 2) if some.any() else 0.0,
        "isolated": float(alone.mean()) if len(alone) else 0.0,
    }
