"""Edges as the seeds of a loader for DGL: the options, the list of edges, and those that leave the blocks of their own mini-batch.

Excluded edges leave after the draws, by their ids, as in DGL: a row may have fewer edges than the fanout, and all vertices stay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ...errors import UsageError, instead_of, is_whole
from ...graph import Graph
from ...graph.minibatch import MiniBatch, hash_arrays
from ...graph.selection import vertex_ids
from ...graph.types import spelled
from .samplers import BlockSampler

Ends = tuple[np.ndarray, np.ndarray]  # sources and destinations within their types, int64
ByRelation = dict[int, np.ndarray]  # by the place of the relation in the graph
MODES = ("self", "reverse_id", "reverse_types")


@dataclass(frozen=True)
class Uniform:
    """Draw k negatives (u, w) for each edge (u, v), w uniform among all vertices of the type of v; edges may be drawn, too.

    The law of `dgl.dataloading.negative_sampler.Uniform`, with draws that are functions of (seed, epoch, mini-batch, position).
    """

    k: int

    def __post_init__(self) -> None:
        if not is_whole(self.k):
            raise UsageError(f"Uniform: got {self.k!r} negatives for each edge; use a whole number, 1 or more")


class EdgePredictionSampler:
    """The sampler that `as_edge_prediction_sampler` returns; see there."""

    def __init__(
        self, sampler: BlockSampler, exclude: Any = None, reverse_eids: Any = None, reverse_etypes: Any = None,
        negative_sampler: Any = None, prefetch_labels: Any = None,
    ) -> None:  # fmt: skip
        if not isinstance(sampler, BlockSampler):
            raise UsageError(f"sampler must be one of bulksample.interop.dgl; got {type(sampler).__name__}")
        if sampler.sampler.adds_seeds or sampler.sampler.coverage:
            raise UsageError(f"edges are scored by the rows of their ends, and {sampler.sampler.name} adds seeds; use another sampler")
        if exclude is not None and not callable(exclude) and (not isinstance(exclude, str) or exclude not in MODES):
            found = repr(exclude) if isinstance(exclude, str) else f"a {type(exclude).__name__}"
            raise UsageError(f"exclude: got {found}; {instead_of(exclude, MODES)}; or give a function of the edges")
        for name, given, mode in (("reverse_eids", reverse_eids, MODES[1]), ("reverse_etypes", reverse_etypes, MODES[2])):
            if exclude == mode and given is None:
                raise UsageError(f"exclude={mode!r} needs {name}; give it, or use exclude='self'")
            if given is not None and exclude != mode and not callable(exclude):
                raise UsageError(f"{name} was given, and exclude is {exclude!r}; use exclude={mode!r}, or leave it out")
        kind = type(negative_sampler)
        if (kind.__module__, kind.__qualname__) == ("dgl.dataloading.negative_sampler", "PerSourceUniform"):
            negative_sampler = Uniform(negative_sampler.k)
        if negative_sampler is not None and not isinstance(negative_sampler, Uniform) and not callable(negative_sampler):
            raise UsageError(f"negative_sampler: got a {kind.__name__}; use Uniform(k), or a function of the graph and edges")
        self.sampler, self.exclude, self.reverse_eids, self.reverse_etypes = sampler, exclude, reverse_eids, reverse_etypes
        self.negatives, self.labels = negative_sampler, prefetch_labels or ()

    @property
    def settings(self) -> dict[str, str]:
        """The options on which mini-batches depend, for comparisons and messages."""
        drawn = f"uniform {self.negatives.k}" if isinstance(self.negatives, Uniform) else _named(self.negatives)
        return {"exclude": self.exclude if isinstance(self.exclude, str) else _named(self.exclude), "negative_sampler": drawn}


def as_edge_prediction_sampler(
    sampler: BlockSampler, exclude: Any = None, reverse_eids: Any = None, reverse_etypes: Any = None, negative_sampler: Any = None,
    prefetch_labels: Any = None,
) -> EdgePredictionSampler:  # fmt: skip
    """Return a sampler of edges from a sampler of vertices, like `dgl.dataloading.as_edge_prediction_sampler`.

    `DataLoader` then takes edges as its `indices`, which may repeat, and yields ``(input_nodes, pair_graph, blocks)``, or with negatives
    ``(input_nodes, pair_graph, negative_graph, blocks)``. The destinations of the last block are the nodes of both graphs.

    Parameters
    ----------
    sampler : BlockSampler
    exclude : {"self", "reverse_id", "reverse_types"} or callable, optional
        Edges that leave the blocks of a mini-batch, after the draws: its own edges; also the edges that `reverse_eids` names as their
        reverses; or those of the same ids in the types of `reverse_etypes`. Parallel edges of other ids stay, as in DGL. A callable gets
        the edges of a mini-batch, a tensor or a dict of such by edge type, and returns those that leave; it is called on the thread that
        samples, and must be a function of its argument alone.
    reverse_eids : tensor, or dict of such by edge type, optional
        The id of the reverse of each edge.
    reverse_etypes : dict of edge types, optional
    negative_sampler : Uniform, or one of DGL, optional
        `Uniform` and DGL's of the name (`PerSourceUniform`) draw by the counters of this package. Others, and any callable that takes the
        graph and the edges of a mini-batch and returns sources and destinations, are called with the random numbers of their own, a bulk
        at a time on the thread that iterates: nothing is sampled ahead then, and no seed or state of the loader repeats their draws.
    prefetch_labels : list of str, or dict of such by edge type, optional
        Edge features to slice at once; others are sliced when they are read.

    Raises
    ------
    UsageError
        If an option has no meaning with the others, or the sampler is none of this package.
    """
    return EdgePredictionSampler(sampler, exclude, reverse_eids, reverse_etypes, negative_sampler, prefetch_labels)


class EdgeList:
    """The m edges that are the examples of a loader, in the order given.

    Raises `UsageError` if an edge or its type does not exist, or no type is named where there are several.
    """

    def __init__(self, graph: Any, indices: Any) -> None:
        self.graph, self.keys, self.named = graph, [tuple(key) for key in graph.canonical_etypes], isinstance(indices, Mapping)
        parts = self.of_types("indices", indices)
        none = np.empty(0, np.int64)
        self.ids = np.concatenate([none, *parts.values()])
        self.relations = np.concatenate([none, *(np.full(len(ids), place) for place, ids in parts.items())])  # their places in the graph
        ends = [self.ends_of(place, ids) for place, ids in parts.items()]
        self.ends = tuple(np.concatenate([none, *columns]) for columns in zip(*ends, strict=True)) or (none, none)

    def __len__(self) -> int:
        return len(self.ids)

    def by_relation(self, positions: np.ndarray) -> ByRelation:
        """Return those of some positions in the list that are of each relation, in their order."""
        relations = self.relations[positions]
        return {place: positions[relations == place] for place in np.unique(relations).tolist()}

    def place(self, what: str, name: Any) -> int:
        """Return the place of the relation that a user names."""
        fits = [place for place, key in enumerate(self.keys) if name in (key, key[1])]
        if len(fits) != 1:
            raise UsageError(f"{what} names the edge type {name!r}; use {', '.join(map(str, self.keys))}")
        return fits[0]

    def of_types(self, what: str, given: Any) -> ByRelation:
        """Return the edges that a user names, by ids or a mask, or by a dict of such by edge type."""
        if not isinstance(given, Mapping):
            if len(self.keys) > 1:
                kinds = ", ".join(map(str, self.keys))
                raise UsageError(f"{what}: got a {type(given).__name__}; the graph has edge types {kinds}: use {{edge type: edges}}")
            given = {self.keys[0]: given}
        found: ByRelation = {}
        for name, ids in given.items():
            if (place := self.place(what, name)) in found:
                raise UsageError(f"{what} names the edge type {self.keys[place]} twice; name it once")
            found[place] = self.checked(f"{what} of type {self.keys[place]}" if len(self.keys) > 1 else what, place, ids)
        return found

    def checked(self, what: str, place: int, ids: Any) -> np.ndarray:
        """Return ids of edges of a relation, or a mask of them, as int64."""
        return vertex_ids(ids, int(self.graph.num_edges(self.keys[place])), what, "edge")

    def ends_of(self, place: int, ids: np.ndarray) -> Ends:
        """Return the ends of some edges of a relation."""
        source, destination = self.graph.find_edges(self.tensor(ids), etype=self.keys[place])
        return source.cpu().numpy().astype(np.int64), destination.cpu().numpy().astype(np.int64)

    def tensor(self, ids: np.ndarray) -> torch.Tensor:
        """Return ids as the graph has them."""
        return torch.from_numpy(np.array(ids, np.int64)).to(self.graph.device, self.graph.idtype)

    def given(self, ids: ByRelation) -> Any:
        """Return edges as functions of the user's get them: a tensor, or a dict by edge type if the indices were one."""
        tensors = {self.keys[place]: self.tensor(one) for place, one in ids.items()}
        return tensors if self.named else next(iter(tensors.values()))


class Exclusion:
    """The edges that leave the blocks of a mini-batch; raises `UsageError` where reverses are named that are none."""

    def __init__(self, edges: EdgeList, options: EdgePredictionSampler) -> None:
        self._edges, self._mode = edges, options.exclude
        self._reverses: ByRelation = {}
        self._turned: list[tuple[int, int]] = []
        every = edges.by_relation(np.arange(len(edges)))
        if self._mode == "reverse_id":
            self._reverses = edges.of_types("reverse_eids", options.reverse_eids)
            for place, at in every.items():
                ids, known = edges.ids[at], len(self._reverses.get(place, ()))
                if known <= (last := ids.max()):
                    raise UsageError(f"reverse_eids: got {known} ids, and none for edge {last} of {edges.keys[place]}; give one for each")
                self._check("reverse_eids", place, at, place, self._reverses[place][ids])
        if self._mode == "reverse_types":
            if not isinstance(named := options.reverse_etypes, Mapping):
                raise UsageError(f"reverse_etypes: got a {type(named).__name__}; use a dict of edge types")
            self._turned = [(edges.place("reverse_etypes", one), edges.place("reverse_etypes", other)) for one, other in named.items()]
            if every and not any(place in every for place, _ in self._turned):
                missing = ", ".join(str(edges.keys[place]) for place in every)
                raise UsageError(f"reverse_etypes has no reverse of {missing}; name it, or use exclude='self'")
            for place, other in self._turned:
                if place in every:
                    self._check("reverse_etypes", place, every[place], other, edges.ids[every[place]])

    def __str__(self) -> str:
        """The rule, with the reverses: equal ones of equal edges exclude the same."""
        if self._mode == "reverse_types":
            return " ".join(["reverse_types", *(f"{spelled(self._edges.keys[a])} {spelled(self._edges.keys[b])}" for a, b in self._turned)])
        if self._mode == "reverse_id":
            sha = hashlib.sha256()
            hash_arrays(sha, [(str(place), ids) for place, ids in sorted(self._reverses.items())])
            return f"reverse_id {sha.hexdigest()[:16]}"
        return self._mode if isinstance(self._mode, str) else _named(self._mode)

    def _check(self, what: str, place: int, at: np.ndarray, other: int, ids: np.ndarray) -> None:
        """Raise `UsageError` unless some edges of another relation are the reverses of those at some positions."""
        edges = self._edges
        key, back = edges.keys[place], edges.keys[other]
        if (back[0], back[2]) != (key[2], key[0]):
            raise UsageError(f"{what}: {back} is no reverse of {key}; use one from {key[2]!r} to {key[0]!r}")
        turned = edges.ends_of(other, edges.checked(what, other, ids))
        forward = [column[at] for column in edges.ends]
        other_way = (turned[0] == forward[1]) & (turned[1] == forward[0])
        itself = (other == place) & (ids == edges.ids[at])  # an edge without a reverse
        if len(bad := np.flatnonzero(~(other_way | itself))):
            i = bad[0]
            raise UsageError(
                f"{what}: edge {edges.ids[at[i]]} of {key} runs from {forward[0][i]} to {forward[1][i]}, and its reverse, edge {ids[i]} of "
                f"{back}, from {turned[0][i]} to {turned[1][i]}; name an edge that runs back"
            )

    def ids(self, edges: ByRelation) -> ByRelation:
        """Return the ids of all edges that leave the blocks of a mini-batch, given those of its own edges."""
        if self._mode is None or not edges:
            return {}
        if self._mode == "reverse_id":
            return {place: np.concatenate([ids, self._reverses[place][ids]]) for place, ids in edges.items()}
        gone = dict(edges)
        if self._mode == "reverse_types":
            for place, other in self._turned:  # one after another, as in DGL: an edge may have a chain of reverses
                if place in gone:
                    gone[other] = np.concatenate([gone[place], *([gone[other]] if other in gone else [])])
        if callable(self._mode):
            found = self._mode(self._edges.given(edges))
            gone = {} if found is None else self._edges.of_types("exclude", found)
        return gone

    def without(self, minibatch: MiniBatch, graph: Graph, edges: ByRelation) -> MiniBatch:
        """Return a mini-batch of a graph without the edges that its own ones exclude, given their ids."""
        gone = self.ids(edges)
        if not gone:
            return minibatch
        assert minibatch.entries is not None  # the sampler was asked for them
        layers, entries = [dict(layer) for layer in minibatch.layers], [dict(layer) for layer in minibatch.entries]
        for place, ids in gone.items():
            relation = graph.relations[place]
            for blocks, of_layer in zip(layers, entries, strict=True):
                drawn = of_layer[relation.key]
                kept = ~np.isin(relation.ids_of(drawn), ids)
                blocks[relation.key], of_layer[relation.key] = blocks[relation.key].only(kept), drawn[kept]
        return replace(minibatch, layers=tuple(layers), known_entries=tuple(entries), find_entries=None)


def _named(function: Any) -> str:
    """Return the name of a function of the user's, or of its class; "" for None."""
    return "" if function is None else str(getattr(function, "__qualname__", type(function).__qualname__))
