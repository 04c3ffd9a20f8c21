"""Mini-batches of torch_geometric's graphs, in its form: drawn k in one call from seeds by type, or one at a time for its loaders."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, Self, TypeAlias

import numpy as np
import torch
from torch_geometric.sampler import BaseSampler, EdgeSamplerInput, HeteroSamplerOutput, NegativeSampling, NodeSamplerInput, SamplerOutput
from torch_geometric.sampler.base import SubgraphType

from ... import backends
from ...adjacency import Adjacency, kind_of_times
from ...backends.base import Backend
from ...distributed.comm.base import Comm
from ...distributed.matrix.grid import ProcessGrid
from ...distributed.matrix.layout import Layout
from ...distributed.matrix.owner import OwnerAdjacency
from ...errors import UsageError
from ...graph.links import NonNeighbors
from ...graph.selection import Selection
from ...graph.times import given_times
from ...local_adjacency import LocalAdjacency
from ...process_lock import process_lock
from ...rng import MAX_EPOCHS, MAX_MINIBATCHES, Stream
from ...samplers import LayerWise, NodeWise
from ...samplers.hgt import HGSampler
from ...sparse import row_pointers
from ..default_seed import seed_or_default
from ..edge_graph import EdgeGraph, EdgeSampler
from .arrange import arranged, induced, side_by_side
from .negatives import SeededNegatives, Seeds, Times, link_seeds
from .read_graph import has_types, read_graph
from .seed_input import by_type

STRIDE = 4096  # the most seeds of a mini-batch with disjoint trees, where a loader does not say it
_COUNTING = process_lock()
Sampled: TypeAlias = SamplerOutput | HeteroSamplerOutput


class SeedSampler(BaseSampler):
    """The part of a `BulkSampler` that its law does not change: the graph, its adjacency, and mini-batches from vertices and from links."""

    sampler: EdgeSampler | NodeWise | HGSampler
    subgraph_type: SubgraphType
    disjoint: bool
    num_neighbors: Any  # the draws of each hop, which `inference` of torch_geometric's models asks for
    grid: int | None = None
    _stride = STRIDE
    _hops: int | None  # None: edges belong to no hop
    _calls = 0

    def _hold(
        self, data: Any, seed: int | None, backend: str, comm: Comm | None, weight_attr: str | None = None, time_attr: str | None = None
    ) -> None:
        """Read the graph, and keep the options that all samplers have."""
        self.graph, self._typed = read_graph(data, weight_attr, time_attr), has_types(data)
        self.stream, self.seeded, self.backend, self.comm = Stream(seed_or_default(seed)), seed is not None, backend, comm
        self._edges = [EdgeGraph(relation) for relation in self.graph.relations]
        self._adjacencies: dict[int | None, Adjacency] = {}  # by number of threads

    def _check(self) -> None:
        backends.make(self.backend)  # also where ranks make the adjacency together: it fails on one of them alone
        if self.grid is None:
            self.sampler.check(self.adjacency)

    def connect(self) -> None:
        """Make the adjacency of ranks that share it; collective. See `made_together.Shared`."""
        if self.grid is not None:
            self.sampler.check(self.adjacency)

    def compared(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """See `made_together.Shared`."""
        return {**self.settings, "seed": int(self.stream.seed), "grid": self.grid}, {"graph": self.fingerprint}

    @property
    def adjacency(self) -> Adjacency:
        """The adjacency that this process samples from. Worker processes use one thread: they share the processors."""
        threads = None if torch.utils.data.get_worker_info() is None else 1
        if threads not in self._adjacencies:
            self._adjacencies[threads] = self._adjacency(backends.make(self.backend, threads))
        return self._adjacencies[threads]

    def _adjacency(self, backend: Backend) -> Adjacency:
        if not isinstance(self.sampler, EdgeSampler):
            return LocalAdjacency(self.graph, backend, by_type=True)
        matrix = self._edges[0].matrix
        if self.comm is None or self.grid is None:
            return LocalAdjacency(matrix, backend, entries=True)
        grid = ProcessGrid(self.comm, self.grid)  # even block rows, drawn from by their owners; collective
        layout = Layout.even(matrix.shape[0], grid.rows)
        return OwnerAdjacency(grid, matrix.take(layout.members(grid.row)), backend, layout)

    def with_seed(self, seed: int) -> Self:
        """Return this sampler with another seed; both have one graph and one adjacency."""
        made = copy.copy(self)
        made.stream, made._adjacencies = Stream(seed), self._adjacencies
        return made

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a worker process, without back ends, which cannot be copied."""
        return {**self.__dict__, "_adjacencies": {}}

    @property
    def num_nodes(self) -> int:
        """Number of vertices of all types."""
        return self.graph.n

    @property
    def timed(self) -> bool:
        """True if time counts in the draws."""
        return getattr(self.sampler, "time", None) is not None

    @property
    def time_window(self) -> int | None:
        """The length of the window of every seed, if it has one."""
        rule = getattr(self.sampler, "time", None)
        return None if rule is None else rule.window

    @property
    def by(self) -> Literal["vertices", "edges"] | None:
        """Which times count: those of vertices, those of edges, or none."""
        return kind_of_times(self.graph, "auto") if self.timed else None

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the graph."""
        return self._edges[0].matrix.fingerprint if isinstance(self.sampler, EdgeSampler) else str(self.adjacency.fingerprint)

    @property
    def settings(self) -> dict[str, Any]:
        """The options on which mini-batches depend, by the names that a user gives them, for messages that compare two samplers."""
        named, shape = dict(self.sampler.settings), {"subgraph_type": self.subgraph_type.value, "disjoint": self.disjoint}
        if of_relations := named.pop("fanouts of relations", None):
            named = {"num_neighbors": of_relations, **named}
        elif "fanouts" in named:
            named = {**named, "num_neighbors": self.num_neighbors}
            del named["fanouts"]
        return named | shape

    def describe(self) -> dict[str, Any]:
        """Return what mini-batches depend on, for the state of a loader."""
        form = "disjoint " * (self.disjoint and isinstance(self.sampler, EdgeSampler)) + str(self.subgraph_type.value)
        return {"sampler": f"{self.sampler.identity_by_type} {form}", "graph": self.fingerprint}

    def sample_from_nodes(self, index: NodeSamplerInput, **kwargs: Any) -> Sampled:
        """Sample one mini-batch. Its id is the number of the call; in a worker process it also depends on the worker's seed."""
        return self.sample_nodes([index], *self._next_name())[0]

    def sample_from_edges(
        self, index: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None, others: NonNeighbors | None = None
    ) -> Sampled:  # fmt: skip
        """Sample one mini-batch of edges; see `sample_from_nodes` and `sample_edges`."""
        return self.sample_edges([index], neg_sampling, *self._next_name(), others)[0]

    @property
    def edge_permutation(self) -> None:
        """None, because the positions of edges in an output are those of the user's `edge_index`."""
        return None

    def _next_name(self) -> tuple[list[int], int]:
        worker = torch.utils.data.get_worker_info()
        with _COUNTING:  # no two threads have one mini-batch
            number, self._calls = self._calls, self._calls + 1
        return [number], MAX_EPOCHS - 1 - (0 if worker is None else worker.seed % (MAX_EPOCHS // 2))

    def sample_nodes(self, inputs: list[NodeSamplerInput], ids: Sequence[int], epoch: int) -> list[Sampled]:
        """Sample mini-batches; without `input_time` a seed has its own time.

        `metadata` has the numbers of the inputs and their times, two dicts by type if there are several, and the weights of edges, None for
        the mean.
        """
        parts = [by_type(index) for index in inputs]
        lists = [{name: part.node.numpy() for name, part in of_batch.items()} for of_batch in parts]
        times = [{name: self.time_of(name, part) for name, part in of_batch.items()} for of_batch in parts]
        starts = [{name: getattr(part, "start", None) for name, part in of_batch.items()} for of_batch in parts]
        given = any(begins is not None for of_batch in starts for begins in of_batch.values())
        outputs = self.sample_seeds(lists, ids, epoch, times, starts if given else ())
        for index, of_batch, out in zip(inputs, parts, outputs, strict=True):
            several = getattr(index, "names", ())
            ids_and_times = [{name: getattr(part, what) for name, part in of_batch.items()} for what in ("input_id", "time")]
            out.metadata = (*(ids_and_times if several else (index.input_id, index.time)), out.metadata)
        return outputs

    def check_given(self, examples: str, time: Any, start: Any = None) -> None:
        """Raise `UsageError` if the times or the starts of ``input`` or ``edge_label`` do not fit the time rule."""
        for what, values in ((f"{examples}_time", time), (f"{examples}_start", start)):
            if values is not None and not self.timed:
                raise UsageError(f"{what} was given without times of the graph; give time_attr too, to the sampler if you made one")
        if start is not None and self.time_window is not None:
            raise UsageError(f"{examples}_start: got a window, and starts of the seeds besides; use one of them")

    def time_of(self, name: str, index: NodeSamplerInput) -> np.ndarray | None:
        """Return the times at which seeds of a type are asked about, by default their own; None if time does not count."""
        self.check_given("input", index.time)
        if not self.timed:
            return None
        if index.time is not None:
            return given_times("input_time", index.time, len(index.node))
        of_vertices = self.graph.type(name).times
        if of_vertices is None:
            what = "the edges have times" if self.by == "edges" else f"type {name!r} has no times"
            raise UsageError(f"the seeds need times, since {what}; give input_time")
        times: np.ndarray = of_vertices[index.node.numpy()]
        return times

    def sample_edges(
        self, inputs: list[EdgeSamplerInput], negatives: NegativeSampling | None, ids: Sequence[int], epoch: int,
        others: NonNeighbors | None = None,
    ) -> list[Sampled]:  # fmt: skip
        """Sample mini-batches of edges. Negatives depend on (epoch, id, position) alone; in time they exist at the time of their edge.

        With `others`, see `negatives.non_edges`, they are no edges.
        """
        if isinstance(self.sampler, EdgeSampler) and isinstance(base := self.sampler.base, LayerWise):
            raise UsageError(f"links with sampler {base.name!r} would lose its weights; use a node-wise sampler")
        if self.timed and any(index.time is None for index in inputs):
            raise UsageError("the edges need times; give edge_label_time")
        links, starts = [], [getattr(index, "start", None) for index in inputs]
        for index, id, start in zip(inputs, ids, starts, strict=True):
            self.check_given("edge_label", index.time, start)
            drawn = negatives and self.negatives_of(index, negatives, id, epoch, others)
            links.append(link_seeds(self.graph, index, drawn, self._typed, self.disjoint))
        ends = [link.times("edge_label_time", index.time) for link, index in zip(links, inputs, strict=True)]
        begins = [link.times("edge_label_start", start) for link, start in zip(links, starts, strict=True)]
        given = any(start is not None for start in starts)
        outputs = self.sample_seeds([link.seeds for link in links], ids, epoch, ends, begins if given else ())
        for out, link in zip(outputs, links, strict=True):
            out.metadata = link.metadata
            if out.batch is not None:  # both ends and the negatives of a link have its number
                number = torch.from_numpy(np.concatenate(list(link.links.values())))
                typed = isinstance(out.batch, dict)
                out.batch = {name: number[trees] for name, trees in out.batch.items()} if typed else number[out.batch]
        return outputs

    def negatives_of(
        self, index: EdgeSamplerInput, law: NegativeSampling, id: int, epoch: int, others: NonNeighbors | None
    ) -> SeededNegatives:  # fmt: skip
        """Return the negatives of a mini-batch of edges; see `sample_edges`."""
        timed, trees = self.by == "vertices", self.disjoint
        return SeededNegatives(self.graph, law, index, self.stream, id, epoch, timed=timed, disjoint=trees, others=others)

    def sample_seeds(
        self, lists: Sequence[Seeds], ids: Sequence[int], epoch: int, times: Sequence[Times] = (), starts: Sequence[Times] = ()
    ) -> list[Any]:
        """Sample mini-batches from seeds by type; `metadata` of each holds the weights of its edges, if it has some.

        `times` and `starts` have one int64 for each seed, in the order of `lists`: the end of its window, and the beginning, see
        `starts_of`. A type whose starts are None has windows without a beginning; without `starts` the time rule has the last word.
        """
        sizes = [sum(len(nodes) for nodes in seeds.values()) for seeds in lists]
        parts = [self.graph.offsets[self.graph.place(name)] + nodes for seeds in lists for name, nodes in seeds.items()]
        vertices = np.concatenate([np.empty(0, np.int64), *parts]).astype(np.int32)
        stamps: list[Any] = [stamp for of_batch in times for stamp in of_batch.values()]
        when = np.concatenate([np.empty(0, np.int64), *stamps]) if self.timed else None
        begins = _beginnings(lists, starts) if self.timed and starts else None
        names, pointers = np.array(ids, np.int64), row_pointers(sizes)
        trees = self.disjoint and isinstance(self.sampler, EdgeSampler) and all(sizes)  # each as a mini-batch of its own
        spans = np.arange(len(vertices) + 1) if trees else pointers
        if trees:
            names = (np.repeat(names * self._stride - pointers[:-1], sizes) + spans[:-1]) % MAX_MINIBATCHES
        seeds = Selection(names, spans, vertices, self.graph.n, None, None, when, begins)
        sampled = self.sampler.sample_bulk(self.adjacency, seeds, self.stream, epoch)
        outs = [arranged(self.graph, one, self._hops) for one in sampled]
        if trees:
            outs = [side_by_side(outs[first:last]) for first, last in pairwise(pointers)]
        return [self._output(out) for out in outs]

    def _output(self, out: HeteroSamplerOutput) -> Sampled:
        """Return a mini-batch in the form of the subgraph that was asked for, without types if the graph has none."""
        if self.subgraph_type == SubgraphType.induced and self._hops is not None:
            out = induced(self._edges, out, self.adjacency.backend)
        made: Any = out
        out.metadata = out.metadata or None
        if not self._typed:
            made = SamplerOutput(
                **{name: next(iter(part.values()), None) if isinstance(part, dict) else part for name, part in vars(out).items()}
            )
        return made.to_bidirectional() if self.subgraph_type == SubgraphType.bidirectional else made


def starts_of(what: str, starts: Any, ends: np.ndarray) -> np.ndarray:
    """Return the beginnings of windows that end at `ends`: int64, shape (m,). `what` names the argument in messages.

    Raises `UsageError` if they are no times, there is not one for each end, or a window begins after its end.
    """
    begins = given_times(what, starts, len(ends))
    if len(late := np.flatnonzero(begins > ends)):
        at = late[0]
        raise UsageError(f"{what}: entry {at} is {begins[at]}, and its time is {ends[at]}; give no start later than its time")
    return begins


def _beginnings(lists: Sequence[Seeds], starts: Sequence[Times]) -> np.ndarray:
    """Return the beginning of the window of every seed, the least int64 where it has none."""
    every = [(len(nodes), of_batch.get(name)) for seeds, of_batch in zip(lists, starts, strict=True) for name, nodes in seeds.items()]
    parts = [np.full(count, np.iinfo(np.int64).min) if begins is None else np.asarray(begins) for count, begins in every]
    return np.concatenate([np.empty(0, np.int64), *parts])
