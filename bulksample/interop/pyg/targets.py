"""Leave the links of a mini-batch out of its own subgraph, where their edges would give the answer away.

    self    the edges of the links' type from the source to the destination of a link of the mini-batch, parallel ones too
    both    also the edges from the destination to the source, in the relation that is the reverse

Edges leave after the draws, as in `bulksample train --exclude-targets`: a row may have fewer edges than the fanout, the others are those of
the loader without the option, and all vertices stay.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch_geometric.sampler import EdgeSamplerInput

from ...data.link_split import reverses_of
from ...errors import UsageError, instead_of
from ...graph import Graph, Key, Relation
from ...graph.links import among_targets
from ...graph.times import given_times
from ...sparse import row_pointers
from .read_graph import EDGES
from .seed_sampler import Sampled

CHOICES = ("none", "self", "both")


class TargetExclusion:
    """The edges that leave the mini-batches of a loader of links of one type, `key`; None stands for a graph without types.

    `mirrored` is True for bidirectional subgraphs, whose edges do not say which they are: of edges with times, those of all times between
    the ends leave; and of a relation within one type also the copy, from the destination to the source, of an edge that the graph has in
    one direction alone. `turns` has the relations, and whether each holds the links turned around.
    """

    turns: list[tuple[Relation, bool]]

    def __init__(self, graph: Graph, key: Key | None, choice: str, reverses: Any, mirrored: bool = False) -> None:
        if choice not in CHOICES:
            raise UsageError(f"exclude_targets: got {choice!r}; {instead_of(choice, CHOICES)}")
        if reverses is not None and (choice != "both" or key is None):
            found = "the graph has one relation, its own reverse" if key is None else f"exclude_targets is {choice!r}"
            raise UsageError(f"reverse_etypes names the relation that exclude_targets='both' excludes, but {found}; leave it out")
        self.choice, self._typed = choice, key is not None
        relations = {relation.key: relation for relation in graph.relations}
        own = relations.get(EDGES if key is None else key)
        turned: tuple[Key, ...] = ()
        if choice == "both":
            turned = (EDGES,) if key is None else _named(relations, key, reverses) if reverses is not None else ()
            if not turned and own is not None:
                turned = reverses_of(graph, own)
            if not turned:
                assert key is not None
                name = f"name it, as in reverse_etypes={{{key}: {fits[0]}}}, or " if (fits := _against(relations, key)) else ""
                raise UsageError(f"exclude_targets: got 'both', and no relation is known as the reverse of {key}; {name}use 'self'")
        elif choice == "self" and own is None:
            raise UsageError(f"exclude_targets: got 'self', and the graph has no edges of type {key}, so none can leave; leave it out")
        self._copied = own if choice == "self" and mirrored and own is not None and own.source == own.destination else None
        self.turns = [] if choice == "none" or own is None else [(own, False)]
        self.turns += [(relations[name], True) for name in turned]
        self._times = {
            relation.key: _by_position(relation) for relation, _ in self.turns if not mirrored and relation.times is not None
        }  # fmt: skip

    def __str__(self) -> str:
        turned = [":".join(relation.key) for relation, turned in self.turns if turned and self._typed]
        return " ".join([self.choice, *turned])

    def without(self, out: Sampled, links: EdgeSamplerInput) -> Sampled:
        """Return a sampled mini-batch without the edges of its links, given these; see `TargetExclusion`."""
        if not self.turns:
            return out
        left: Any = copy.copy(out)
        pairs = torch.stack([links.row, links.col]).numpy().astype(np.int64)
        times = None if links.time is None else given_times("edge_label_time", links.time)
        for name in ("row", "col", "edge", "num_sampled_edges") if self._typed else ():
            setattr(left, name, copy.copy(getattr(out, name)))
        for relation, turned in self.turns:
            self._clear(left, relation, pairs[::-1] if turned else pairs, times)
        if self._copied is not None:
            alone = self._copied.adjacency.find(pairs[0], pairs[1]) < 0  # rows are destinations: no edge from the destination back
            self._clear(left, self._copied, pairs[::-1][:, alone], None)
        return left

    def _clear(self, out: Any, relation: Relation, targets: np.ndarray, times: np.ndarray | None) -> None:
        """Take the edges between some ends out of one relation of a mini-batch, in place."""
        key = relation.key

        def part(value: Any, of: Any = key) -> Any:
            return value[of] if self._typed and value is not None else value

        row, col, edge, hops = (part(getattr(out, name)) for name in ("row", "col", "edge", "num_sampled_edges"))
        by_position = self._times.get(key)
        stamps = None if by_position is None or times is None else (times, lambda places: by_position[edge.numpy()[places]])
        ends = part(out.node, key[0])[row].numpy(), part(out.node, key[2])[col].numpy()
        kept = ~among_targets(ends, targets, stamps)
        chosen = torch.from_numpy(kept)
        left = {"row": row[chosen], "col": col[chosen], "edge": None if edge is None else edge[chosen]}
        if hops is not None:
            left["num_sampled_edges"] = np.diff(row_pointers(kept)[row_pointers(hops)]).tolist()
        for name, value in left.items():
            if self._typed and getattr(out, name) is not None:
                getattr(out, name)[key] = value
            elif not self._typed:
                setattr(out, name, value)


def _named(relations: Mapping[Key, Relation], key: Key, reverses: Any) -> tuple[Key, ...]:
    """Return the reverse of a relation by the user's mapping; raises `UsageError` for one that is none."""
    if not isinstance(reverses, Mapping):
        raise UsageError(f"reverse_etypes: got a {type(reverses).__name__}; use a dict, such as {{{key}: {key[::-1]}}}")
    name = reverses.get(key)
    if name not in (fits := _against(relations, key)):
        got = f"got {name!r} as the reverse of {key}" if key in reverses else f"got no reverse of {key}"
        raise UsageError(f"reverse_etypes: {got}; use {' or '.join(map(str, fits)) or 'a graph with such a relation'}")
    return (name,)


def _against(relations: Mapping[Key, Relation], key: Key) -> list[Key]:
    """Return the relations between the types of one, the other way."""
    return [other for other in relations if (other[0], other[2]) == (key[2], key[0])]


def _by_position(relation: Relation) -> np.ndarray:
    """Return the times of edges in the order of the user's list: int64, shape (m,)."""
    assert relation.times is not None
    times = np.empty_like(relation.times)
    times[relation.ids_of(np.arange(relation.edges))] = relation.times
    return times
