"""Drop-ins for torch_geometric's GraphSAINT loaders: random vertices, and every edge among them.

    V = the vertices that `batch_size` random draws reach;   every edge of the graph among V is kept
    random walks: from b uniform roots along the edges;   vertices: the sources of b uniform edges;   edges: both ends of b edges

Zeng, Zhou, Srivastava, Kannan, Prasanna, "GraphSAINT: graph sampling based inductive learning method", ICLR 2020.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch.utils.data import DataLoader
from torch_geometric.data import Data
from torch_geometric.sampler import SamplerOutput

from ... import backends
from ...backends.base import Backend, Picks
from ...data.atomic import save_npz
from ...data.npy import Archive
from ...data.random_words import scaled
from ...distributed.comm.base import Comm
from ...errors import DataError, UsageError
from ...graph.selection import Selection
from ...rng import MAX_EPOCHS, Law, Stream, Substream
from ...samplers.arrivals import SharedRow
from ...samplers.saint import Coefficients, count, walk
from ...sparse import CSR, fixed_point, row_pointers
from ..default_seed import seed_or_default
from ..edge_graph import EdgeGraph
from ..made_together import made_together
from ..tensors import FeatureGather
from .attributes import attributes_of, whole
from .bulk_drop_in import hashed
from .drop_in import DropInLoader
from .read_graph import check_edge_index, edge_ends, edges_of, num_nodes_of

_COUNTED = MAX_EPOCHS - 1  # the epoch of the subgraphs in which coefficients are counted


class GraphSAINTSampler(DropInLoader, DataLoader):  # type: ignore[misc, type-arg]  # torch_geometric's is a DataLoader of steps as well
    """The base of the drop-ins for `torch_geometric.loader.GraphSAINT...Sampler`, without torch-sparse.

    An epoch has `num_steps` subgraphs. In a subgraph vertices ascend, and so do edges by source and destination. With
    `sample_coverage`, ``node_norm`` weighs the vertices in the loss and ``edge_norm`` the edges in the aggregation.

    Parameters
    ----------
    data : torch_geometric.data.Data with an `edge_index`
    batch_size : int
        b, draws of a subgraph: roots, vertices or edges.
    num_steps : int
    sample_coverage : int
        How often a vertex is held on average by the subgraphs in which coefficients are counted; 0 for none.
    save_dir : path, optional
        A folder where the coefficients are kept for the next time; a file of another graph, order of its edges, seed or option is not
        used.
    log
        Ignored.
    bulk_size, memory_budget, comm
        See `DropInLoader`.
    seed, backend
        See `NeighborLoader`.
    options
        Of `torch.utils.data.DataLoader`: `num_workers` (threads), …

    Raises
    ------
    UsageError
        If the graph is heterogeneous or lies in stores, or has no edge to draw, or a number is not positive.

    Notes
    -----
    ``edge_norm`` of an edge u -> v is C_v / C_uv, as in the paper: v aggregates. torch_geometric has the count of u in the numerator.
    """

    _draws_edges = False
    _of_seed = ("_identity", "_coefficients")

    @made_together
    def __init__(
        self, data: Data, batch_size: int, num_steps: int = 1, sample_coverage: int = 0, save_dir: str | None = None, log: bool = True, *,
        bulk_size: int | Literal["auto"] = "auto", memory_budget: int | None = None, comm: Comm | None = None, seed: int | None = None,
        backend: str = "auto", **options: Any,
    ) -> None:  # fmt: skip
        check_edge_index(type(self).__name__, data)
        self._draws, self.num_steps = whole("batch_size", batch_size, 1), whole("num_steps", num_steps, 1)
        self.sample_coverage, self.save_dir = whole("sample_coverage", sample_coverage, 0), save_dir
        taken = [name for name in ("node_norm", "edge_norm") if name in data]
        if taken:
            raise UsageError(f"the graph has an attribute {taken[0]!r} already, which the loader would replace; rename it")
        self.data, self.N, self.E = data, num_nodes_of(data), data.num_edges
        if self._draws_edges and not self.E:
            raise UsageError(f"{type(self).__name__} draws edges, and the graph has none")
        self._graph, self._ends = EdgeGraph(edges_of(data, leaving=True)), edge_ends(data)
        self._gather, self._backend = FeatureGather(), backend
        self.set_up_epochs(Stream(seed_or_default(seed)), bulk_size, memory_budget, options, comm, seeded=seed is not None)
        super().__init__(range(self.num_steps), batch_size=1, collate_fn=self._collated, **options)  # type: ignore[arg-type]

    @abstractmethod
    def _reached(self, ids: np.ndarray, epoch: int, roots: Substream) -> tuple[np.ndarray, np.ndarray]:
        """Return the vertices that the draws of subgraphs reach, repetitions included: pointers (k + 1) and int vertices."""

    @cached_property
    def _on(self) -> Backend:
        return backends.make(self._backend)

    def _words(self, ids: np.ndarray, epoch: int, roots: Substream) -> np.ndarray:
        """Return random words for each draw of each subgraph: uint32, shape (k, b, 4)."""
        return self._stream.words(roots.tag(epoch), np.arange(self._draws)[None, :], minibatch=np.asarray(ids)[:, None])

    def _subgraphs(self, ids: np.ndarray, epoch: int, roots: Substream) -> tuple[Selection, np.ndarray, np.ndarray, np.ndarray]:
        """Draw subgraphs: their vertices, ascending; and the row pointers, local columns and positions of their edges."""
        pointers, reached = self._reached(ids, epoch, roots)
        lists = [np.unique(reached[pointers[j] : pointers[j + 1]]) for j in range(len(ids))]
        vertices = Selection.of(lists, self.N, np.asarray(ids, np.int64))
        kept = self._on.restrict(self._graph.matrix, vertices, vertices)
        if self._graph.pointers is None:
            return vertices, kept.pointers, kept.columns, self._graph.relation.ids_of(kept.entries)
        edges, copies, _ = self._graph.edges_of(kept.entries)
        return vertices, row_pointers(copies)[kept.pointers], np.repeat(kept.columns, copies), self._graph.relation.ids_of(edges)

    def _bulk(self, indices: list[Any], ids: list[int], epoch: int) -> list[SamplerOutput]:
        vertices, pointers, columns, edges = self._subgraphs(np.array(ids), epoch, Substream.SAINT_ROOT)
        outputs = []
        for j in range(len(ids)):
            rows = pointers[vertices.pointers[j] : vertices.pointers[j + 1] + 1]
            span = slice(rows[0], rows[-1])
            ends = np.repeat(np.arange(len(rows) - 1), np.diff(rows)), columns[span].astype(np.int64), np.array(edges[span])
            outputs.append(SamplerOutput(torch.from_numpy(vertices.part(j).astype(np.int64)), *map(torch.from_numpy, ends)))
        return outputs

    @property
    def _settings(self) -> dict[str, Any]:
        named = {"num_steps": self.num_steps, "sample_coverage": self.sample_coverage, "walk_length": getattr(self, "walk_length", None)}
        return super()._settings | {"batch_size": self._draws} | named

    def _describe(self) -> dict[str, Any]:
        numbers = {name: value for name, value in vars(self).items() if name in ("num_steps", "sample_coverage", "walk_length", "_draws")}
        sampler = f"{type(self).__name__}{sorted(numbers.items())}"
        return {"sampler": sampler, "graph": self._graph.matrix.fingerprint, "order_of_edges": self._order_of_edges}

    @cached_property
    def _order_of_edges(self) -> str:
        """The SHA-256 of the user's order of the edges, in which vertices and edges are drawn and `edge_norm` is given."""
        return hashed({"edges": torch.from_numpy(self._graph.relation.ids_of(np.arange(self.E)))})

    def _collated(self, index: list[int]) -> Any:
        """Sample one subgraph; used as `collate_fn`, which iteration over the loader does not call."""
        return self._finished(self._bulk([index], [int(index[0])], self.epoch)[0])

    def _finished(self, sampled: SamplerOutput) -> Any:
        batch = type(self.data)()
        batch.num_nodes = len(sampled.node)
        batch.edge_index = torch.stack([sampled.row, sampled.col])
        for key, value in attributes_of(self.data, sampled.node, sampled.edge, self._gather):
            batch[key] = value
        if self.sample_coverage:
            batch.node_norm = self.node_norm[sampled.node]
            batch.edge_norm = self.edge_norm[sampled.edge]
        return batch

    @property
    def node_norm(self) -> torch.Tensor:
        """The weight of each vertex in the loss: float32, shape (n,)."""
        return torch.from_numpy(self._coefficients.vertices)

    @property
    def edge_norm(self) -> torch.Tensor:
        """The factor of each edge in the aggregation: float32, shape (m,)."""
        return torch.from_numpy(self._coefficients.edges)

    @cached_property
    def _coefficients(self) -> Coefficients:
        if not self.sample_coverage:
            raise UsageError("there are no coefficients: sample_coverage is 0; use 50 or the like")
        saved = None if self.save_dir is None else Path(self.save_dir) / f"{type(self).__name__.lower()}_{self.sample_coverage}.npz"
        identity = np.frombuffer(repr(sorted(self._identity.items())).encode(), np.uint8)
        if saved is not None and (known := _read(saved, identity, self.N, self.E)) is not None:
            return known

        def draw(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            visited, _, _, edges = self._subgraphs(ids, _COUNTED, Substream.SAINT_COUNTED_ROOT)
            return visited.vertices, edges

        made = count(draw, self.N, self._ends[1], self.sample_coverage)
        if saved is not None:
            saved.parent.mkdir(parents=True, exist_ok=True)
            save_npz(saved, {"told": identity, "vertices": made.vertices, "edges": made.edges})
        return made


class GraphSAINTRandomWalkSampler(GraphSAINTSampler):
    """A drop-in for `torch_geometric.loader.GraphSAINTRandomWalkSampler`: `batch_size` walks of `walk_length` steps along the edges.

    Roots are uniform over all vertices and may repeat. A walker draws among the edges that leave its vertex; where none does, it stays.
    """

    @made_together
    def __init__(
        self, data: Data, batch_size: int, walk_length: int, num_steps: int = 1, sample_coverage: int = 0, save_dir: str | None = None,
        log: bool = True, **options: Any,
    ) -> None:  # fmt: skip
        self.walk_length = whole("walk_length", walk_length, 0, 255)
        super().__init__(data, batch_size, num_steps, sample_coverage, save_dir, log, **options)

    def _reached(self, ids: np.ndarray, epoch: int, roots: Substream) -> tuple[np.ndarray, np.ndarray]:
        starts = scaled(self._words(ids, epoch, roots)[..., 0], 32, self.N)

        def draw(at: Selection, step: int) -> Picks:
            law = self._stream.draw(Law.REPLACEMENT, layer=step, epoch=epoch)
            if self._graph.pointers is None:
                return self._on.sample_rows(self._graph.matrix, at, 1, law)
            picks = self._on.sample_rows(self._graph.incidence, at, 1, law)  # parallel edges count one by one
            return picks._replace(columns=self._graph.relation.adjacency.indices[picks.columns])

        return walk(draw, Selection.of(starts, self.N, np.asarray(ids, np.int64)), self.walk_length)


class GraphSAINTNodeSampler(GraphSAINTSampler):
    """A drop-in for `torch_geometric.loader.GraphSAINTNodeSampler`: the sources of `batch_size` uniform edges, which may repeat."""

    _draws_edges = True

    def _reached(self, ids: np.ndarray, epoch: int, roots: Substream) -> tuple[np.ndarray, np.ndarray]:
        edges = scaled(self._words(ids, epoch, roots)[..., 0], 32, self.E)
        return np.arange(len(ids) + 1) * self._draws, self._ends[0][edges].ravel()


class GraphSAINTEdgeSampler(GraphSAINTSampler):
    """A drop-in for `torch_geometric.loader.GraphSAINTEdgeSampler`: both ends of `batch_size` distinct edges, drawn by weight.

    The weight of an edge u -> v is 1 / (edges that leave u) + 1 / (edges into v), as in the paper, section 3.3; torch_geometric adds the
    counts themselves.
    """

    _draws_edges = True

    @cached_property
    def _weighted(self) -> SharedRow:
        leaving, into = (np.bincount(ends, minlength=self.N) for ends in self._ends)
        weights, _ = fixed_point(1 / leaving[self._ends[0]] + 1 / into[self._ends[1]], self.E)
        return SharedRow(CSR(np.array([0, self.E]), np.arange(self.E, dtype=np.int32), weights, (1, self.E)))

    def _reached(self, ids: np.ndarray, epoch: int, roots: Substream) -> tuple[np.ndarray, np.ndarray]:
        draw = self._stream.layer_draw(layer=roots.value[1], epoch=epoch)
        picks = self._weighted.draw(self._on, min(self._draws, self.E), np.asarray(ids, np.int64), draw)
        return picks.pointers * 2, np.stack([ends[picks.columns] for ends in self._ends], axis=1).ravel()


def _read(path: Path, wanted: np.ndarray, n: int, m: int) -> Coefficients | None:
    """Return the coefficients of a file; None if there is none, it is damaged, or it belongs to another loader."""
    if not path.exists():
        return None
    try:
        with Archive(path) as archive:
            identity, vertices, edges = (archive.read(name) for name in ("told", "vertices", "edges"))
    except DataError:
        return None
    fits = np.array_equal(identity, wanted) and vertices.shape == (n,) and edges.shape == (m,)
    return Coefficients(vertices, edges) if fits and vertices.dtype == edges.dtype == np.float32 else None
