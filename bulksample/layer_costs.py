"""Rules that choose between equal ways to compute a layer, by the rows that each reads. No torch is imported here."""

from __future__ import annotations

# Time of one multiply-add of a dense product over that of one entry of a sparse one (bench/run.py spmm).
_DENSE_COST = 0.1
# Rows that the input layer may read in place for each source: from here on, to copy each source once and to read the copy was faster
# (timed by hand: 32 MiB of cache, 100 features, 20,000 to 165,000 sources of 500,000 and 2,000,000 vertices, 1 to 20 edges a source).
_READS_OF_A_SOURCE = 4


def narrows(width_in: int, width_out: int, sources: float, destinations: float, edges: float) -> bool:
    """Return True if a linear layer on dense rows costs less when it multiplies by W before it aggregates.

    Transforming first multiplies S rows and aggregates at the output width; aggregating first multiplies D rows and aggregates at the
    input width. On a whole graph S = D, and the narrower side wins.
    """
    return _DENSE_COST * (sources - destinations) * width_in * width_out < edges * (width_in - width_out)


def reads_in_place(width_in: int, width_out: int, sources: float, destinations: float, edges: float) -> bool:
    """Return True if the input layer of GraphSAGE costs less when it averages features where they lie than when it gathers them first.

    In place it reads D + E rows of the features. Gathered, it reads S rows, writes them, and reads D + E rows of the copy, which a cache
    may hold.
    """
    return destinations + edges <= _READS_OF_A_SOURCE * sources and not narrows(width_in, width_out, sources, destinations, edges)
