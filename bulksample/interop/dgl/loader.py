"""A drop-in for DGL's `DataLoader`: `BulkLoader` samples bulks, DGL makes the blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, cast

import numpy as np
import torch

from ... import backends
from ...adjacency import LocalAdjacency
from ...distributed.comm.agree import begin_together
from ...distributed.comm.base import Comm
from ...errors import UsageError
from ...loader import BulkLoader
from ...pickled import Uncached
from ...position import Positioned
from .. import require
from ..feature_gather import FeatureGather, can_gather
from ..hand_split import warn_of_equal_draws
from ..made_together import OwnComm, made_together
from .edge_sampler import EdgeHop, EdgeMiniBatch, EdgeSampler
from .samplers import BlockSampler, distinct_vertices, refuse_values
from .typed_blocks import TypedBlocks

INSTALL = "use a build of DGL for the installed torch: https://www.dgl.ai/pages/start.html"
_NOT_NEEDED = {
    "num_workers", "persistent_workers", "use_prefetch_thread", "use_alternate_streams", "pin_prefetcher", "gpu_cache", "pin_memory",
    "prefetch_factor",
}  # fmt: skip


class DataLoader(OwnComm, Positioned, Uncached):
    """A loader of ``(input_nodes, output_nodes, blocks)``, like `dgl.dataloading.DataLoader` for vertices.

    Of a heterograph, both are dicts by vertex type, and blocks have the types and relations of the graph.

    Parameters
    ----------
    graph : DGLGraph
        Of one type or of several.
    indices : tensor of distinct vertices, or a bool mask; of a heterograph a dict of such by vertex type
    graph_sampler : BlockSampler
    device
        Device of the blocks; that of the graph by default.
    batch_size, shuffle, drop_last
        See DGL.
    seed, bulk_size, memory_budget : see `bulksample.loader.BulkLoader`
        The seed is 0 unless given.
    comm : Comm, optional
        Rank r of p takes mini-batches r, r + p, ... A rank without a mini-batch in the last step ends one step earlier. All ranks make the
        loader together, with equal options, and begin epochs together: both are collective, and all ranks raise if they differ.
    backend : {"auto", "native", "reference", "cuda"}
    num_workers, use_prefetch_thread, persistent_workers, pin_prefetcher, use_alternate_streams
        Ignored: a thread of this process samples ahead.

    Raises
    ------
    UsageError
        If a seed repeats, fanouts by edge type leave one out or are given to a layer-wise sampler, or an option has no meaning here.
    ImportError
        If DGL is missing.
    """

    @made_together
    def __init__(
        self,
        graph: Any,
        indices: Any,
        graph_sampler: BlockSampler,
        device: Any = None,
        use_ddp: bool = False,
        ddp_seed: int = 0,
        batch_size: int = 1,
        drop_last: bool = False,
        shuffle: bool = False,
        use_uva: bool = False,
        *,
        seed: int | None = None,
        bulk_size: int | Literal["auto"] = "auto",
        memory_budget: int | None = None,
        comm: Comm | None = None,
        backend: str = "auto",
        **not_needed: Any,
    ) -> None:
        require("dgl", None, INSTALL)
        refuse_values(
            use_ddp=use_ddp and "True (comm=bulksample.distributed.comm.world.world() gives each rank its mini-batches)", use_uva=use_uva
        )
        unknown = not_needed.keys() - _NOT_NEEDED
        if unknown:
            raise UsageError(f"DataLoader has no option {', '.join(sorted(unknown))}")
        if not isinstance(graph_sampler, BlockSampler):
            raise UsageError(f"graph_sampler must be one of bulksample.interop.dgl; got {type(graph_sampler).__name__}")
        self.graph, self._device = graph, device
        self._comm, self._seeded = comm, seed is not None
        seed = 0 if seed is None else seed
        rank, ranks = (0, 1) if comm is None else (comm.rank, comm.size)
        options: dict[str, Any] = {
            "batch_size": batch_size, "bulk_size": bulk_size, "seed": seed, "shuffle": shuffle, "drop_last": drop_last, "rank": rank,
            "ranks": ranks, "memory_budget": memory_budget,
        }  # fmt: skip
        self._settings = {
            **graph_sampler.sampler.settings, "fanouts": repr(graph_sampler.by_type or graph_sampler.sampler.fanouts),
            "prob": graph_sampler.prob, "batch_size": batch_size, "seed": seed, "shuffle": shuffle, "drop_last": drop_last,
        }  # fmt: skip
        self._typed: TypedBlocks | None = None
        if not getattr(graph, "is_homogeneous", True):
            self._typed = TypedBlocks(graph, indices, graph_sampler, backend, **options)
            self._loader = self._typed.loader
            return
        for name in graph_sampler.features:
            if name not in graph.ndata:
                raise UsageError(f"the graph has no vertex feature {name!r}; it has {', '.join(graph.ndata) or 'none'}")
        self._features = tuple(name for name in graph_sampler.features if can_gather(graph.ndata[name]))
        self._gather = FeatureGather()
        self._drawn = EdgeSampler(graph, graph_sampler)
        adjacency = LocalAdjacency(self._drawn.edges.matrix, backends.make(backend), entries=True)
        self._loader = BulkLoader(
            adjacency,
            self._drawn,  # type: ignore[arg-type]  # its mini-batches are not of class MiniBatch
            distinct_vertices(indices, adjacency.n), **options,
        )  # fmt: skip

    def compared(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """See `made_together.Shared`."""
        state = self._loader.state_dict()
        return self._settings, {"graph": state.get("graph"), "indices": state["seeds"]}

    def __len__(self) -> int:
        """Return the number of steps of an epoch."""
        return self._loader.steps

    @property
    def _position(self) -> BulkLoader:
        return self._loader

    def __iter__(self) -> Iterator[tuple[Any, Any, list[Any]]]:
        if self._comm is not None:
            begin_together(self._comm, self._loader.coming)
        elif not self._seeded:
            warn_of_equal_draws(f"{type(self).__module__.rpartition('.')[0]}.{type(self).__name__}")
        for found in self._loader:
            if found is not None and self._typed is not None:
                yield self._placed(*self._typed.blocks(cast(Any, found)))
            elif found is not None:
                yield self._blocks(found)  # type: ignore[arg-type]

    def _placed(self, inputs: dict[str, Any], outputs: dict[str, Any], blocks: list[Any]) -> tuple[Any, Any, list[Any]]:
        """Return a mini-batch of a heterograph on the device of the loader."""
        place = self.graph.device if self._device is None else self._device
        there = [{name: ids.to(place) for name, ids in one.items()} for one in (inputs, outputs)]
        return there[0], there[1], blocks if self._device is None else [block.to(self._device) for block in blocks]

    def _blocks(self, found: EdgeMiniBatch) -> tuple[Any, Any, list[Any]]:
        vertices = torch.from_numpy(found.vertices.astype(np.int64)).to(self.graph.idtype)
        blocks = [self._block(vertices[: hop.num_sources], hop) for hop in found.blocks]
        for name in self._features:
            blocks[0].srcdata[name] = self._gather(self.graph.ndata[name], found.vertices)
        if self._device is not None:
            blocks = [block.to(self._device) for block in blocks]
        place = self.graph.device if self._device is None else self._device
        return vertices.to(place), vertices[: len(found.seeds)].to(place), blocks

    def _block(self, vertices: Any, hop: EdgeHop) -> Any:
        """Make a block with the ids of its vertices and edges; features of the graph are sliced when they are read."""
        dgl, idtype = require("dgl", None, INSTALL), self.graph.idtype
        indptr, indices = (torch.from_numpy(part.astype(np.int64)).to(idtype) for part in (hop.pointers, hop.columns))
        no_names = torch.empty(0, dtype=idtype)
        block = dgl.create_block(("csc", (indptr, indices, no_names)), len(vertices), hop.num_destinations, device=self.graph.device)
        vertices, edges = vertices.to(self.graph.device), torch.from_numpy(hop.edges).to(idtype).to(self.graph.device)
        nodes = dgl.utils.extract_node_subframes_for_block(self.graph, [vertices], [vertices[: hop.num_destinations]])
        dgl.utils.set_new_frames(block, node_frames=nodes, edge_frames=dgl.utils.extract_edge_subframes(self.graph, [edges]))
        block.srcdata[dgl.NID], block.dstdata[dgl.NID], block.edata[dgl.EID] = vertices, vertices[: hop.num_destinations], edges
        if hop.weights is not None:
            block.edata["weight"] = torch.from_numpy(hop.weights).to(self.graph.device)
        return block
