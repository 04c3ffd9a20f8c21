"""A drop-in for torch_geometric's `LinkNeighborLoader`: its examples are edges, with negatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any, Literal

import numpy as np
import torch
from torch_geometric.data import Data, FeatureStore, GraphStore, HeteroData
from torch_geometric.loader import LinkLoader
from torch_geometric.loader.utils import get_edge_label_index
from torch_geometric.sampler import NegativeSampling
from torch_geometric.sampler.base import NumNeighbors, SubgraphType

from ...distributed.comm.base import Comm
from ...errors import UsageError, check_switches
from ..made_together import made_together
from .attributes import check_attributes, column, vertex_pairs
from .bulk_drop_in import BulkDropIn, hashed, sampler_for, seeds_of_batch
from .link_options import check_links, link_starts, negative_sampling
from .negatives import non_edges
from .read_graph import compressed, edge_ends, has_types, is_pair
from .sampler import BulkSampler
from .seed_input import LinkInput
from .seed_sampler import Sampled
from .targets import TargetExclusion


class LinkNeighborLoader(BulkDropIn, LinkLoader):
    """A drop-in for `torch_geometric.loader.LinkNeighborLoader`.

    Parameters
    ----------
    data, num_neighbors, edge_label_index, edge_label, replace, subgraph_type, disjoint, weight_attr, transform, \
transform_sampler_output, filter_per_worker
        See torch_geometric.
    neg_sampling, neg_sampling_ratio
        The distributions of torch_geometric, false negatives included; draws depend on (seed, epoch, mini-batch, position) alone. A ratio
        other than 0 stands for as many binary negatives; one beside another `neg_sampling` is refused.
    edge_label_time, time_attr, temporal_strategy
        See torch_geometric: both or none of the first two. With times of vertices, a negative is drawn uniformly, or by its weight, among
        the vertices that exist at the time of the link.
    edge_label_start : int64, shape (m,), optional
        The beginning of the window of each link, no later than its `edge_label_time`: nothing earlier is drawn, in any hop. Its ends and
        its negatives may be older themselves.
    bulk_size, memory_budget, comm, seed, grid, backend
        See `NeighborLoader`.
    exclude_targets : {"none", "self", "both"}
        Edges left out of the subgraph of a mini-batch: those of its own links (``self``), or also their reverses (``both``). Neighbors
        are drawn first, then these edges leave: a row may have fewer than its fanout, and all vertices stay. All parallel edges leave; with
        times of edges, those of the link's time alone, as earlier ones are the past (in a bidirectional subgraph, those of all times).
        Drawn negatives stay.
    strict_negatives : bool
        Draw no negative that is an edge of the links' type, from the source to the destination, of any time, nor a vertex as its own
        negative: the same distributions, given that. Draws that are no edges stay those of the loader without the option. A vertex of
        weight above 0 stays possible, however small: redraws round weights to steps, 2**-42 of the largest among a million vertices. Links
        that are no edges of the graph may be drawn. Keeps 8 bytes for each pair that an edge joins, 16 with `dst_weight`.
    reverse_etypes : dict of edge types, optional
        The edge type that holds the reverses of another, as in DGL. By default the type with the same pairs turned around, or one named
        ``rev_NAME``. A graph without types has one, its own reverse.

    Raises
    ------
    UsageError
        If options contradict each other, or the graph; if a link has no strict negative: in triplets its source has edges to all vertices.
    DataError
        If `edge_label_index` has another shape or dtype, or no vertex of positive weight exists at the time of a link.
    """

    link_sampler: BulkSampler

    @made_together
    def __init__(
        self, data: Data | HeteroData | tuple[FeatureStore, GraphStore],
        num_neighbors: Sequence[int] | Mapping[Any, Sequence[int]] | NumNeighbors, edge_label_index: Any = None,
        edge_label: torch.Tensor | None = None, edge_label_time: torch.Tensor | None = None, replace: bool = False,
        subgraph_type: SubgraphType | str = "directional", disjoint: bool = False,
        temporal_strategy: Literal["uniform", "last"] = "uniform", neg_sampling: NegativeSampling | str | None = None,
        neg_sampling_ratio: float | None = None, time_attr: str | None = None, weight_attr: str | None = None,
        transform: Callable[[Any], Any] | None = None, transform_sampler_output: Callable[[Any], Any] | None = None,
        is_sorted: bool = False, filter_per_worker: bool | None = None, neighbor_sampler: BulkSampler | None = None,
        directed: bool = True, *, bulk_size: int | Literal["auto"] = "auto", grid: int | None = None, comm: Comm | None = None,
        seed: int | None = None, memory_budget: int | None = None, backend: str = "auto",
        exclude_targets: Literal["none", "self", "both"] = "none", reverse_etypes: Mapping[Any, Any] | None = None,
        strict_negatives: bool = False, edge_label_start: torch.Tensor | None = None, **options: Any,
    ) -> None:  # fmt: skip
        for named, other, absent in (("time_attr", "edge_label_time", edge_label_time), ("edge_label_time", "time_attr", time_attr)):
            if absent is None and (edge_label_time is not None or time_attr is not None):
                raise UsageError(f"'{other}' is not set, but '{named}' is; give both, or none")
        if compressed(data) is not None:
            raise UsageError("links of an adj_t in torch's compressed rows are not supported; use an edge_index")
        check_attributes(data)
        edge_label, edge_label_time = column("edge_label", edge_label), column("edge_label_time", edge_label_time)
        check_switches(strict_negatives=strict_negatives)
        law, links = negative_sampling(neg_sampling, neg_sampling_ratio), seeds_of_batch(options)
        if strict_negatives and law is None:
            raise UsageError("strict_negatives was given without neg_sampling, so there are none; give it too, or leave it out")
        amount = 0 if law is None else ceil(law.amount)
        neighbor_sampler = sampler_for(
            neighbor_sampler, data, num_neighbors, subgraph_type, directed, seeds=None if links is None else 2 * links * (1 + amount),
            time_attr=time_attr, temporal_strategy=temporal_strategy, replace=replace, weight_attr=weight_attr, disjoint=disjoint,
            seed=seed, backend=backend, comm=comm, grid=grid,
        )  # fmt: skip
        neighbor_sampler.check_given("edge_label", edge_label_time, edge_label_start)
        key, pairs = get_edge_label_index(data, _links(data, neighbor_sampler, edge_label_index))
        check_links(pairs.shape[1], edge_label, edge_label_time, law)
        start = link_starts(edge_label_start, edge_label_time)
        edge_label = edge_label if pairs.shape[1] else None  # of no labels torch_geometric finds no least one
        self.set_up(neighbor_sampler, bulk_size, memory_budget, options)
        super().__init__(
            data, neighbor_sampler, pairs if isinstance(data, Data) else (key, pairs), edge_label, edge_label_time, neg_sampling=law,
            transform=transform, transform_sampler_output=transform_sampler_output, filter_per_worker=filter_per_worker, **options,
        )  # fmt: skip
        if start is not None:
            self.input_data = LinkInput(self.input_data, start)
        self._others = non_edges(neighbor_sampler.graph, self.input_data.input_type, law) if law is not None and strict_negatives else None
        if law is not None:
            neighbor_sampler.negatives_of(self.input_data, law, 0, 0, self._others).check_some()
        self._targets = TargetExclusion(
            neighbor_sampler.graph, self.input_data.input_type, exclude_targets, reverse_etypes,
            mirrored=neighbor_sampler.subgraph_type == SubgraphType.bidirectional,
        )  # fmt: skip

    @property
    def _settings(self) -> dict[str, Any]:
        law = self.neg_sampling
        drawn = "" if law is None else f"{law.mode.value}, {law.amount:g} of each{', no edges' * (self._others is not None)}"
        return super()._settings | {"neg_sampling": drawn, "exclude_targets": str(self._targets)}

    def _describe(self) -> dict[str, Any]:
        law = self.neg_sampling
        strict = {} if self._others is None else {"strict": True}
        described = super()._describe() | {"negatives": "" if law is None else hashed({**vars(law), "mode": law.mode.value, **strict})}
        if self._targets.turns:
            described["sampler"] += f", exclude_targets {self._targets}"
        return described

    def _sample(self, inputs: list[Any], ids: list[int], epoch: int) -> Sequence[Sampled]:
        sampled = self.link_sampler.sample_edges(inputs, self.neg_sampling, ids, epoch, self._others)
        return [self._targets.without(one, links) for one, links in zip(sampled, inputs, strict=True)]

    def collate_fn(self, index: Any) -> Any:
        """Sample the subgraph of some links, given their positions, for ``loader(index)``."""
        links = self.input_data[index]
        out = self._targets.without(self.link_sampler.sample_from_edges(links, self.neg_sampling, self._others), links)
        return self.filter_fn(out) if self.filter_per_worker else out


def _links(data: Any, sampler: BulkSampler, links: Any) -> Any:
    """Return the links as torch_geometric takes them, their ends checked; the edge type stands before the pairs of types and of stores."""
    if not has_types(data):
        n = int(sampler.num_nodes)
        if not is_pair(data):
            if links is None and data.edge_index is None:
                raise UsageError("edge_label_index: got None, and the graph has no edge_index whose edges are the links; give pairs")
            return None if links is None else vertex_pairs("edge_label_index", links, n)
        pairs = links[1] if isinstance(links, tuple) else links  # torch_geometric names the type of the edges of a store, None here
        return None, torch.from_numpy(np.stack(edge_ends(data))) if pairs is None else vertex_pairs("edge_label_index", pairs, n)
    keys = [relation.key for relation in sampler.graph.relations]
    named = isinstance(links, tuple | list) and len(links) in (2, 3)
    key, pairs = (links, None) if named and isinstance(links[0], str) else links if named and len(links) == 2 else (None, None)
    if isinstance(data, HeteroData) and isinstance(key, tuple | list):
        key = data._to_canonical(*key)
    names = {kind.name for kind in sampler.graph.types}
    known = isinstance(key, tuple) and len(key) == 3 and {key[0], key[2]} <= names  # links may be of a type without edges
    if not isinstance(key, tuple) or not known or (pairs is None and key not in keys):
        what = key if isinstance(key, tuple | str) else type(links).__name__
        raise UsageError(f"edge_label_index: got {what!r}; name the edge type, or (edge type, pairs); use {', '.join(map(str, keys))}")
    if pairs is None:
        return key
    counts = sampler.graph.type(key[0]).count, sampler.graph.type(key[2]).count
    return key, vertex_pairs("edge_label_index", pairs, counts)
