"""Make the view and the model of a run on a heterogeneous graph."""

from __future__ import annotations

from typing import Literal

from ..backends.base import Backend
from ..config.train import TrainOptions
from ..data.relational.held_out_links import HeldOutLinks, LinkGraph
from ..distributed.comm.agree import together
from ..distributed.comm.base import Comm
from ..distributed.matrix.open_relations import open_relations
from ..distributed.matrix.placement import Placement
from ..distributed.matrix.relation_blocks import PartitionedRelations, read_blocks
from ..distributed.matrix.type_layouts import TypeLayouts
from ..errors import UsageError
from ..graph import Graph, VertexType
from ..nn.decoders import LinkModel
from ..nn.relational import RelationalGnn, Schema
from ..relations.rule import TimeRule
from ..views.relational import RelationalView
from ..views.relational_links import RelationalLinkView
from ..views.seed_times import SeedTimes, rule_of, seed_times
from ..views.type_features import TypeFeatures, block_features, whole_features
from .source import target_of_run


def relational_view(
    config: TrainOptions, graph: Graph, placement: Placement, comm: Comm, backend: Backend, fingerprint: str, gathering: int
) -> RelationalView:  # fmt: skip
    """Open a heterogeneous graph on this rank: its topology and its features, each whole or in block rows; collective.

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
        _refuse_weights(config, graph)
        return kind, seed_times(config, graph, kind)

    kind, times = together(comm, target)
    relations = _relation_blocks(config, graph, placement, comm, backend) if placement.partitioned else None
    view = together(comm, lambda: RelationalView(graph, kind, comm, backend, fingerprint, config.seeds, times, relations))
    _take_features(config, view, placement, comm, gathering)
    return view


def _take_features(config: TrainOptions, view: RelationalView, placement: Placement, comm: Comm, gathering: int) -> None:
    """Open the features of a view, whole or in block rows; collective."""
    if placement.shards_features:
        graph, needed, relations = view.graph, view.schema.types_of_layers(config.layers)[0], view.relations
        blocks = TypeLayouts(placement.feature_grid(comm), view.schema.counts, placement.partition, config.seed)
        counted = relations.references if isinstance(relations, PartitionedRelations) else None
        learned = config.featureless == "embedding"
        features = block_features(graph, needed, blocks, config.feature_norm, config.feature_codec, config.cache_bytes, counted, learned)
        view.take_features(features, blocks)
    else:
        view.take_features(together(comm, lambda: _whole_features(config, view, gathering)))
    view.memory["embeddings"] = _embedding_bytes(config, view)


def whole_relational_view(
    config: TrainOptions, graph: Graph, kind: VertexType, comm: Comm, backend: Backend, fingerprint: str, split: str
) -> RelationalView:  # fmt: skip
    """Open a heterogeneous graph whole on this rank, or a part of one as a graph of its own; sends nothing.

    `kind` is the type to predict, with its labels; see `relational_view` for what is raised.
    """
    _refuse_weights(config, graph)
    view = RelationalView(graph, kind, comm, backend, fingerprint, split, seed_times(config, graph, kind))
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


def _relation_blocks(
    config: TrainOptions, graph: Graph, placement: Placement, comm: Comm, backend: Backend
) -> PartitionedRelations:  # fmt: skip
    """Read this rank's rows of all relations; collective. Sampling has communicators of its own."""
    grid = placement.topology_grid(comm.duplicate())
    blocks = TypeLayouts(grid, {kind.name: kind.count for kind in graph.types}, placement.partition, config.seed)
    held = together(comm, lambda: read_blocks(graph, blocks))
    return open_relations(placement, graph, backend, blocks, held)


def relational_link_view(
    config: TrainOptions, graph: LinkGraph, placement: Placement, comm: Comm, backend: Backend, fingerprint: str, gathering: int
) -> RelationalLinkView:  # fmt: skip
    """Open a heterogeneous graph with held-out links on this rank; see `relational_view`, also for what is raised. Collective."""

    def rule() -> tuple[HeldOutLinks, TimeRule | None]:
        _refuse_weights(config, graph)
        held, found = graph.held_out, rule_of(config, graph)
        assert held is not None
        if found is not None and held.times is None:
            raise UsageError(
                f"graph {graph.name!r} has times, but {graph.relation(held.relation)} and its ends have none, so it is unknown when a link "
                "was asked about; use a relation with times, or a graph without any"
            )
        return held, found

    held, found = together(comm, rule)
    asked = graph, held.relation, found, held.reverses, comm, backend, fingerprint
    if placement.partitioned:
        relations = _relation_blocks(config, graph, placement, comm, backend)
        blocks = {key: relations.rows_of(graph.relation(key)) for key in (held.relation, *held.reverses)}
        together(comm, lambda: held.check_absent(graph, blocks))
        view = RelationalLinkView(*asked, relations)
    else:
        view = together(comm, lambda: RelationalLinkView(*asked))
    _take_features(config, view, placement, comm, gathering)
    return view


def _whole_features(config: TrainOptions, view: RelationalView, gathering: int) -> TypeFeatures:
    """Return the features of the types that the model reads, whole on this rank."""
    needed = view.schema.types_of_layers(config.layers)[0]
    return whole_features(view.graph, needed, config.feature_norm, config.feature_storage, gathering)


def _refuse_weights(config: TrainOptions, graph: Graph) -> None:
    weighted = [str(relation) for relation in graph.relations if relation.adjacency.values is not None]
    if weighted and config.sampler == "labor":
        raise UsageError(f"model {config.model} takes means without weights, and labor draws by them; {weighted[0]} has weights: use sage")


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
