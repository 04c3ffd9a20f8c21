"""Take mini-batches through their hops: the loop that every sampler shares, written once.

It defines `Backend.expand`. Adjacencies use it wherever a back end cannot take all hops in one call, as for a graph on many ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..graph.selection import Selection
from ..sparse import row_pointers


class Hop(NamedTuple):
    """The edges that the rows of a frontier drew in one hop."""

    pointers: np.ndarray  # int64, shape (rows + 1,)
    columns: np.ndarray  # int32, shape (E,): global vertices, or positions in the vertices of the mini-batch
    weights: np.ndarray | None  # float32, shape (E,); None stands for the mean
    entries: np.ndarray | None = None  # int64, shape (E,): positions in A, if asked for and known


class Expansion(NamedTuple):
    """One mini-batch after all its hops, in local numbers.

    `held` counts the vertices before the first hop and after each. So hop h draws for rows ``0 .. held[h] - 1`` and finds
    the vertices ``held[h] .. held[h + 1] - 1``. There is one `Hop` for each of them; but if only new vertices are expanded,
    there is a single one whose first ``held[h]`` rows belong to hop h. A last hop that is not numbered finds no vertices, so `held` ends
    before it, and its columns are vertices of the graph.
    """

    seed_rows: np.ndarray  # int32, shape (b,): the position of each seed in `vertices`
    vertices: np.ndarray  # int32, shape (N,): the distinct seeds, then what each hop found, in order of discovery
    held: list[int]  # L + 1 numbers
    hops: list[Hop]


Relabel = Callable[[Selection, np.ndarray, np.ndarray], tuple[Selection, np.ndarray]]


def hop_by_hop(
    relabel: Relabel, seeds: Selection, draw_hop: Callable[[Selection, int], Hop], hops: int, only_new: bool, numbered: bool = True
) -> list[Expansion]:  # fmt: skip
    """Expand k mini-batches hop by hop: only the vertices that the previous hop found if `only_new`, otherwise all found so far.

    ``draw_hop(frontier, h)`` returns the draws of hop h for the rows of a frontier, in global vertices. For `relabel` see
    `Backend.relabel`. Without `numbered` the last hop is left in global vertices.
    """
    held, seed_rows = relabel(seeds.none_of(), seeds.pointers, seeds.vertices)
    frontier, drawn, sizes = held, [], [held.sizes]
    for h in range(hops):
        hop = draw_hop(frontier, h)
        if h == hops - 1 and not numbered:
            drawn.append((frontier, hop))
            break
        grown, local = relabel(held, hop.pointers[frontier.pointers], hop.columns)
        drawn.append((frontier, hop._replace(columns=local)))
        frontier = grown.added_since(held) if only_new else grown
        held = grown
        sizes.append(held.sizes)
    return cut(seeds.pointers, held.pointers, held.vertices, seed_rows, [(at.pointers, hop) for at, hop in drawn], sizes, only_new)


def cut(
    seeds: np.ndarray, ends: np.ndarray, vertices: np.ndarray, seed_rows: np.ndarray, hops: list[tuple[np.ndarray, Hop]],
    sizes: list[np.ndarray], only_new: bool,
) -> list[Expansion]:  # fmt: skip
    """Cut a bulk into its mini-batches, as views where possible.

    `seeds` and `ends` are pointers (int64, shape (k + 1,)) of the seeds, and of the `vertices` held at the end. Of each hop there are
    pointers of its frontier, and the draws of its rows. `sizes` count the vertices that each mini-batch held before the first hop and after
    each.
    """
    counts = np.stack(sizes, axis=1).tolist()
    expansions = []
    for j in range(len(ends) - 1):
        parts = [part_of(hop, frontier[j], frontier[j + 1]) for frontier, hop in hops]
        rows = seed_rows[seeds[j] : seeds[j + 1]]
        expansions.append(Expansion(rows, vertices[ends[j] : ends[j + 1]], counts[j], [joined(parts)] if only_new else parts))
    return expansions


def part_of(hop: Hop, first: int, last: int) -> Hop:
    """Return rows first .. last - 1, as views where possible."""
    pointers = hop.pointers[first : last + 1]
    edges = slice(pointers[0], pointers[-1])
    weights, entries = (None if array is None else array[edges] for array in (hop.weights, hop.entries))
    return Hop(pointers - pointers[0], hop.columns[edges], weights, entries)


def joined(hops: list[Hop]) -> Hop:
    """Join the rows of all hops, one after the other."""
    pointers = row_pointers(np.concatenate([np.diff(hop.pointers) for hop in hops]))
    weights, entries = (
        [array for array in arrays if array is not None] for arrays in zip(*[(h.weights, h.entries) for h in hops], strict=True)
    )
    parts = (np.concatenate(arrays) if arrays else None for arrays in (weights, entries))
    return Hop(pointers, np.concatenate([hop.columns for hop in hops]), *parts)
