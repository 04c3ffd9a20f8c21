"""Make the view and the model of a run on a heterogeneous graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any, Literal, cast

import numpy as np

from ..backends.base import Backend
from ..config import UNION
from ..config.train import TrainOptions
from ..data.held_out_links import HeldOutLinks
from ..data.link_split import LinkGraph
from ..distributed.comm.agree import together
from ..distributed.comm.base import Comm
from ..distributed.comm.threads import SerialComm
from ..distributed.matrix.layout import TypeLayouts
from ..distributed.matrix.open_graph import open_relations
from ..distributed.matrix.relation_blocks import PartitionedRelations, read_blocks
from ..errors import UsageError
from ..graph import Graph, VertexType
from ..nn.decoders import LinkModel
from ..nn.relational import RelationalGnn, Schema
from ..relations.rule import TimeRule
from ..samplers import Sampler
from ..views.relational import RelationalView
from ..views.relational_links import RelationalLinkView
from ..views.seed_times import SeedTimes, rule_of, seed_times
from ..views.type_features import TypeFeatures, block_features, whole_features
from .cached_rows import COUNTED
from .source import ViewRequest, target_of_run


def relational_view(config: TrainOptions, graph: Graph, request: ViewRequest) -> RelationalView:
    """Open a graph of relations on this rank: its topology and its features, each whole or in block rows; collective.

    Raises
    ------
    UsageError
        On every rank, if options of time do not suit the graph, its seeds have no times though the graph has, or its features cannot
        be divided in the way that is asked for.
    DataError
        On every rank, if a column of times holds anything but whole numbers or dates.
    """

    def target() -> tuple[VertexType, SeedTimes | None]:
        kind = target_of_run(graph, config.target_type, config.label).with_label(config.label, config.target)
        times = _seed_times(config, graph, kind, request.placement.partitioned and request.weighted)
        if config.eval_memory and request.placement.partitioned:
            raise UsageError("eval_memory bounds scores that are computed layer by layer, and relations lie in block rows: leave it out")
        return kind, times

    comm, ours = request.comm, (request.backend, request.fingerprint)
    kind, times = together(comm, target)
    relations = _relation_blocks(config, graph, request) if request.placement.partitioned else None
    view = together(comm, lambda: RelationalView(graph, kind, comm, *ours, config.seeds, times, relations, request.weighted))
    _take_features(config, view, request)
    return view


def _take_features(config: TrainOptions, view: RelationalView, request: ViewRequest) -> None:
    """Open the features of a view, whole or in block rows; collective."""
    placement, comm = request.placement, request.comm
    if placement.shards_features:
        graph, needed, relations = view.graph, view.schema.types_of_layers(config.layers)[0], view.relations
        blocks = TypeLayouts.open(graph, placement, placement.feature_grid(comm), config.seed)
        counted: Callable[[str], np.ndarray] | None = relations.references if isinstance(relations, PartitionedRelations) else None
        if config.cache_bytes and config.cache_by == "frequency":
            counted = _counts_of_draws(config, view, request.sampler, comm)
        learned = config.featureless == "embedding"
        featureless = [name for name in needed if not view.schema.widths[name]]
        if learned and featureless and config.fetch_together > 1:
            raise UsageError(
                f"types {', '.join(featureless)} have no features, and rows learned for them in block rows are looked up for one "
                f"mini-batch at a time; got fetch_together {config.fetch_together}: use 1, featureless constant or features replicated"
            )
        features = block_features(graph, needed, blocks, config.feature_norm, config.feature_codec, config.cache_bytes, counted, learned)
        view.take_features(features, blocks)
    else:
        shared = placement.features != "replicated"  # the ranks of a machine then convert features together
        take = partial(_whole_features, config, view, request.gather_threads)
        view.take_features(take(comm) if shared else together(comm, take))
    view.memory["embeddings"] = _embedding_bytes(config, view)


def whole_relational_view(
    config: TrainOptions, graph: Graph, kind: VertexType, comm: Comm, backend: Backend, fingerprint: str, split: str, weighted: bool
) -> RelationalView:  # fmt: skip
    """Open a heterogeneous graph whole on this rank, or a part of one as a graph of its own; sends nothing.

    `kind` is the type to predict, with its labels; see `relational_view` for what is raised.
    """
    view = RelationalView(graph, kind, comm, backend, fingerprint, split, _seed_times(config, graph, kind), weighted=weighted)
    view.take_features(_whole_features(config, view, 0))
    view.memory["embeddings"] = _embedding_bytes(config, view)
    return view


def _embedding_bytes(config: TrainOptions, view: RelationalView) -> int:
    """Return the bytes of the learned rows that this rank holds."""
    schema = view.schema
    learned = [name for name in schema.types_of_layers(config.layers)[0] if not schema.widths[name]]
    if config.featureless == "constant":
        return 4 * config.hidden * len(learned)
    return 4 * config.hidden * sum(schema.counts[name] if view.blocks is None else len(view.blocks.members(name)) for name in learned)


def _counts_of_draws(config: TrainOptions, view: RelationalView, sampler: Sampler, comm: Comm) -> Callable[[str], np.ndarray]:
    """Sample the first mini-batches of each rank, and return what counts the vertices of a type in those of all ranks; collective.

    Counting is an all-reduce of 8 bytes for each vertex of the type (kind "topology").
    """
    if config.seed_locality:
        raise UsageError("cache_by frequency counts the draws of all ranks, and seed_locality gives each its own: use cache_by degree")
    loader = view.loader(
        sampler, view.seeds, batch_size=config.batch_size, bulk_size=COUNTED, seed=config.seed, rank=comm.rank, ranks=comm.size,
        prefetch=False,
    )  # fmt: skip
    drawn = [minibatch.vertices for minibatch in islice(loader, COUNTED) if minibatch is not None]

    def counts(name: str) -> np.ndarray:
        vertices = np.concatenate([np.empty(0, np.int32), *(of_types[name] for of_types in cast(Any, drawn))])
        return comm.allreduce(np.bincount(vertices, minlength=view.graph.type(name).count), "topology")

    return counts


def _relation_blocks(config: TrainOptions, graph: Graph, request: ViewRequest) -> PartitionedRelations:
    """Read this rank's rows of all relations; collective. Sampling has communicators of its own."""
    placement, comm = request.placement, request.comm
    blocks = TypeLayouts.open(graph, placement, placement.topology_grid(comm.duplicate()), config.seed)
    held = together(comm, lambda: read_blocks(graph, blocks))
    return open_relations(placement, graph, request.backend, blocks, held)


def relational_link_view(config: TrainOptions, graph: LinkGraph, request: ViewRequest) -> RelationalLinkView:
    """Open a heterogeneous graph with held-out links on this rank; see `relational_view`, also for what is raised. Collective."""
    comm = request.comm
    held, found = together(comm, lambda: link_rule(config, graph))
    asked = graph, held.relation, found, held.reverses, comm, request.backend, request.fingerprint
    if request.placement.partitioned:
        relations = _relation_blocks(config, graph, request)
        blocks = {key: relations.rows_of(graph.relation(key)) for key in (held.relation, *held.reverses)}
        together(comm, lambda: held.check_absent(graph, blocks))
        view = RelationalLinkView(*asked, relations)
    else:
        view = together(comm, lambda: RelationalLinkView(*asked))
    _take_features(config, view, request)
    return view


def whole_link_view(
    config: TrainOptions, graph: Graph, held: HeldOutLinks, rule: TimeRule | None, backend: Backend, fingerprint: str
) -> RelationalLinkView:  # fmt: skip
    """Open a graph whose links are predicted whole on this rank, or a part of one as a graph of its own; sends nothing."""
    view = RelationalLinkView(graph, held.relation, rule, held.reverses, SerialComm(), backend, fingerprint)
    view.take_features(_whole_features(config, view, 0))
    view.memory["embeddings"] = _embedding_bytes(config, view)
    return view


def link_rule(config: TrainOptions, graph: LinkGraph) -> tuple[HeldOutLinks, TimeRule | None]:
    """Return the held-out links of a graph and the rule of time; raises `UsageError` if they do not suit the options."""
    if (weighted := _weighted(graph)) and config.sampler == "labor":
        raise UsageError(f"exact ranks take means without weights, and labor draws by them; {weighted[0]} has weights: use sage")
    held, rule = graph.held_out, rule_of(config, graph)
    assert held is not None
    if rule is not None and held.times is None:
        raise UsageError(
            f"graph {graph.name!r} has times, but {graph.relation(held.relation)} and its ends have none, so it is unknown when a link "
            "was asked about; use a relation with times, or a graph without any"
        )
    return held, rule


def _whole_features(config: TrainOptions, view: RelationalView, gathering: int, shared_by: Comm | None = None) -> TypeFeatures:
    """Return the features of the types that the model reads, whole on this rank or, with `shared_by`, on its machine."""
    needed = view.schema.types_of_layers(config.layers)[0]
    return whole_features(view.graph, needed, config.feature_norm, config.feature_storage, gathering, shared_by)


def _weighted(graph: Graph) -> list[str]:
    """Return the relations with weights."""
    return [str(relation) for relation in graph.relations if relation.adjacency.values is not None]


def _seed_times(config: TrainOptions, graph: Graph, kind: VertexType, weighted_blocks: bool = False) -> SeedTimes | None:
    """Return the times of the seeds; `weighted_blocks` says that means are by weights that lie in block rows."""
    if weighted_blocks and config.evaluation == "exact" and (found := _weighted(graph)):
        raise UsageError(
            f"exact scores by edge weight read whole relations, and {found[0]} has weights; got graph partitioned with sampler "
            f"{config.sampler}: use topology replicated, or evaluate sampled"
        )
    times = seed_times(config, graph, kind)
    if times is not None and config.sampler in UNION:
        raise UsageError(f"sampler {config.sampler} draws from all relations at once, whatever their times; use sage, labor or full")
    if times is not None and config.eval_memory:
        raise UsageError(f"eval_memory bounds scores that are computed layer by layer, and graph {graph.name!r} has times: leave it out")
    return times


def relational_model(
    config: TrainOptions, schema: Schema, outputs: int, seed: int, blocks: TypeLayouts | None = None
) -> RelationalGnn | LinkModel:  # fmt: skip
    """Make the model of a configuration, with initial weights drawn from `seed`; collective with learned rows in `blocks`."""
    links = config.task == "links"
    norm: Literal["none", "batch", "layer"] = "batch" if config.batch_norm else "layer" if config.layer_norm else "none"
    width = config.hidden if links else outputs
    made = RelationalGnn(
        config.model, schema, config.hidden, config.layers, width, config.dropout, config.input_dropout, norm, config.heads,
        config.featureless, seed, blocks,
    )  # fmt: skip
    return LinkModel(made, config.decoder, config.hidden) if links else made
