"""The memory that an import of an OGB data set in the binary layout takes, by formula."""

from bulksample.data.edges import BUCKET


def peak_bytes(n: int, edges: int, undirected: bool, edge_width: int = 0) -> int:
    """Return the peak memory of `read` with `scratch` and `store.save` for a set in the binary layout, without the interpreter.

        max(4 k + 8 min(k, B), (5 + 4 d) k if d) + 8 (n + 1) + 56 n + 0.3 GB

    k are the edges, or twice as many if `undirected`; B is `edges.BUCKET`; d is the width of edge features. An entry takes a
    column of 4 bytes, mapped from a file if there are more than B, so that the system may take its pages back; later a mark and its
    features. A key that is sorted takes 8 bytes, at most B at a time. A vertex takes a row pointer, labels, masks and temporaries.
    Features of vertices and the listed edges are read in pieces.
    """
    k = edges * (2 if undirected else 1)
    entries = max(4 * k + 8 * min(k, BUCKET), (5 + 4 * edge_width) * k if edge_width else 0)
    return entries + 8 * (n + 1) + 56 * n + 3 * 10**8
