"""Make the parts of a run from its configuration: the sampler, the model, and the graph as this rank sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal, cast

import numpy as np

from .. import samplers
from ..backends.base import Backend
from ..config.train import TrainOptions
from ..distributed.comm.agree import together
from ..distributed.comm.threads import SerialComm
from ..distributed.matrix.layout import TypeLayouts
from ..distributed.matrix.open_graph import open_block, open_relations, part_places
from ..distributed.matrix.relation_blocks import PartitionedRelations, read_blocks
from ..distributed.matrix.relation_links import PartitionedLinks, PlainRows
from ..errors import UsageError
from ..evaluation.by_batches import BatchScoring
from ..evaluation.metrics import check_two_classes
from ..graph import Graph, VertexType
from ..graph.labels import has_label
from ..local_adjacency import LocalAdjacency
from ..nn.decoders import EdgeModel, LinkModel, PairModel
from ..nn.model import Gnn, build
from ..nn.relational import RelationalGnn, Schema
from ..samplers import Sage, Sampler
from ..views.plain_view import block_view, feature_block_view, targets_of, whole_view
from ..views.seed_times import SeedTimes
from ..views.type_features import whole_features
from ..views.type_view import LinkTargets, TypeTargets, type_view
from ..views.view import View, as_weighed
from .edge_task import EdgeTask, link_rule
from .feature_setup import check_cache, features_by_block, features_by_type, remote_features
from .link_batches import without_labels
from .source import ViewRequest, directory_of, load_graph, seed_times_of, target_of_run

_EVALUATED = 20  # neighbors that sampled scores draw in each hop, as the published runs of 1.5D sampling do
_SCORING_SEED = 0xA0761D6478BD642F  # added to the seed of the run: scores draw apart from training


def make_sampler(config: TrainOptions) -> Sampler:
    """Return the sampler that a configuration describes; raises `UsageError` if there is none."""
    options = dict(config.sampler_options)
    if config.sampler == "shadow":
        options.setdefault("layers", config.layers)
    return samplers.make(config.sampler, config.fanouts, frontier=config.frontier, **options)


def open_view(config: TrainOptions, request: ViewRequest) -> View:
    """Open the graph as this rank sees it: topology and features each whole, or in block rows over the ranks; collective.

    Raises `UsageError` on every rank if this graph cannot be trained on in the way that the configuration asks for, or no vertex is a seed,
    and `DataError` if a column of times holds anything but whole numbers or dates.
    """
    _check_options(config, request)
    if config.is_relational:
        return _type_view(config, request)
    view = _block_view(config, request) if request.placement.partitioned else _whole_view(config, request)
    check_seeds(view.name, view.seeds, view.labels if request.of_vertices else None)
    return view


def _check_options(config: TrainOptions, request: ViewRequest) -> None:
    """Raise `UsageError` for options of features that other ranks hold, or of whole ones, if they are placed otherwise."""
    placement, features = request.placement, request.placement.features
    if placement.shards_features and config.feature_storage != "given":
        asked = f"{config.feature_storage} and features in block rows: use features replicated or host, or feature_codec"
        raise UsageError(f"feature_storage is for features that a rank or its machine holds whole; got {asked}")
    if not placement.shards_features and (config.feature_codec != "fp32" or config.cache_bytes or config.fetch_together > 1):
        asked = f"features {features}: use graph partitioned, or features partitioned"
        raise UsageError(f"feature_codec, cache_bytes and fetch_together are for features that other ranks hold; got {asked}")
    check_cache(config, placement, request.sampler)


def _whole_view(config: TrainOptions, request: ViewRequest) -> View:
    """Open the whole topology on this rank, and its features where the placement says: in block rows, or for this rank or its machine."""
    comm, backend, mark, sharded = request.comm, request.backend, request.fingerprint, request.placement.shards_features
    label, target = (config.label, config.target) if request.of_vertices else (None, None)
    graph = as_weighed(load_graph(request.source, label, target, features=not sharded), request.weighted)
    split = config.seeds if request.of_vertices else "all"
    if request.links:
        request.links.check_absent(graph)
    if request.of_vertices:
        check_labels(graph.name, graph.labels, graph.num_classes)
    else:
        graph = without_labels(graph)
    if sharded:
        adjacency, targets = LocalAdjacency(graph.adjacency, backend), targets_of(graph, split)

        def references(members: np.ndarray) -> np.ndarray:
            counts = np.bincount(graph.adjacency.indices, minlength=graph.n)
            return np.asarray(counts[members])

        grid, features = remote_features(config, request, references, lambda: (adjacency, targets.seeds))
        return _with_pairs(feature_block_view(graph, targets, adjacency, grid, features, mark, request.weighted), request.edges, graph)
    options = (config.feature_norm, request.weighted, config.feature_storage, request.gather_threads, request.shared_by)
    places = None if not request.of_vertices or isinstance(request.source, Graph) else part_places(request.source)
    return _with_pairs(whole_view(graph, comm, backend, mark, split, *options, places), request.edges, graph)


def _with_pairs(view: View, edges: EdgeTask | None, graph: Graph) -> View:
    """Return a view whose examples are labelled pairs, if there are any, of a graph of one relation."""
    if edges is not None:
        view.targets.links, view.targets.num_classes = edges.pairs(graph), edges.table.num_classes
        view.memory["replicated"] += edges.table.nbytes
    return view


def _block_view(config: TrainOptions, request: ViewRequest) -> View:
    """Open this rank's block row of the topology, and its features where the placement says."""
    source, comm, placement = directory_of(request.source), request.comm, request.placement
    same = placement.same_rows(comm)
    label, target = (config.label, config.target) if request.of_vertices else (None, None)
    opened = open_block(source, placement, comm.duplicate(), config.seed, same, label, target)
    opened, links = replace(opened, block=as_weighed(opened.block, request.weighted)), request.links
    if not request.of_vertices:
        none = np.full(len(opened.block.vertices), -1, np.int64)
        opened = replace(opened, block=replace(opened.block, labels=none, num_classes=0, masks={}))
    else:
        check_labels(opened.block.name, opened.block.labels, opened.block.num_classes)
    grid, seeds = placement.topology_grid(comm), config.seeds if request.of_vertices else "all"
    features = features_by_block(config, request, opened, grid)
    uses_degrees = config.model in ("gcn", "gat")
    view = block_view(opened, grid, request.backend, features, request.fingerprint, seeds, request.weighted, uses_degrees)
    if request.of_vertices:
        return view
    rows = PlainRows(opened)
    if links:
        view.targets.links = examples = PartitionedLinks(rows, rows.graph.relations[0], timed=False)
        together(comm, lambda: links.check_absent(rows.graph, examples.rows))
    return _with_pairs(view, request.edges, rows.graph)


def _type_view(config: TrainOptions, request: ViewRequest) -> View:
    """Open a graph of relations on this rank: its topology and its features, each whole or in block rows; collective."""
    graph, comm, links, edges = cast(Graph, request.source), request.comm, request.links, request.edges
    if links:
        rule = together(comm, lambda: link_rule(config, graph, links))
        make: Callable[..., TypeTargets] = partial(LinkTargets, graph, links.relation, rule, links.reverses)
    elif edges is not None:
        rule, reverses = together(comm, lambda: (edges.rule(config, graph), edges.reverses(config, graph)))
        make = partial(LinkTargets, graph, edges.relation, rule, reverses, labelled=edges.examples)
    else:
        kind, times = together(comm, lambda: _target(config, graph, request))
        make = partial(TypeTargets, graph, kind, config.seeds, times, request.weighted)
    if request.placement.partitioned:
        layouts = TypeLayouts.open(graph, request.placement, request.placement.topology_grid(comm.duplicate()), config.seed)
        read = together(comm, lambda: read_blocks(graph, layouts))
        blocks = open_relations(request.placement, graph, request.backend, layouts, read)  # sampling has communicators of its own
        relations: LocalAdjacency | PartitionedRelations = blocks
        if links:
            rows = {key: blocks.rows_of(graph.relation(key)) for key in (links.relation, *links.reverses)}
            together(comm, lambda: links.check_absent(graph, rows))
            targets = make(blocks)  # collective
        else:
            targets = together(comm, make)
    else:
        relations, targets = together(comm, lambda: (LocalAdjacency(graph, request.backend, by_type=True), make()))
    if request.of_vertices:
        check_labels(targets.kind.name, targets.kind.labels, targets.num_classes)
        check_seeds(targets.kind.name, targets.seeds, targets.labels)
    features = features_by_type(config, request, targets, relations)
    view = _with_embeddings(config, targets.schema, type_view(targets, relations, features, comm, request.fingerprint))
    if edges:
        view.memory["replicated"] += edges.table.nbytes
    return view


def _target(config: TrainOptions, graph: Graph, request: ViewRequest) -> tuple[VertexType, SeedTimes | None]:
    """Return the type to predict, and when its vertices are asked about."""
    kind = target_of_run(graph, config.target_type, config.label).with_label(config.label, config.target)
    times = seed_times_of(config, graph, kind, request.placement.partitioned and request.weighted)
    if config.eval_memory and request.placement.partitioned:
        raise UsageError("eval_memory bounds scores that are computed layer by layer, and relations lie in block rows: leave it out")
    return kind, times


def whole_type_view(config: TrainOptions, targets: TypeTargets, backend: Backend, fingerprint: str, schema: Schema | None = None) -> View:
    """Open a graph of relations, or a part of one, whole on this rank; sends nothing. The model has `schema`, by default the targets'."""
    relations, schema = LocalAdjacency(targets.graph, backend, by_type=True), schema or targets.schema
    needed = schema.types_of_layers(config.layers)[0]
    features = whole_features(targets.graph, needed, config.feature_norm, config.feature_storage)
    return _with_embeddings(config, schema, type_view(targets, relations, features, SerialComm(), fingerprint))


def _with_embeddings(config: TrainOptions, schema: Schema, view: View) -> View:
    """Return a view whose `memory` has the bytes of the learned rows that this rank holds."""
    learned, blocks = [name for name in schema.types_of_layers(config.layers)[0] if not schema.widths[name]], view.features.blocks
    rows = len(learned)
    if config.featureless != "constant":
        rows = sum(schema.counts[name] if blocks is None else len(blocks.members(name)) for name in learned)
    view.memory["embeddings"] = 4 * config.hidden * rows
    return view


def make_model(
    config: TrainOptions, inputs: int | Schema, outputs: int, seed: int, blocks: TypeLayouts | None = None, pair_features: int = 0
) -> Gnn | RelationalGnn | PairModel:  # fmt: skip
    """Make the model of a configuration for a number of features or a schema; collective with learned rows in `blocks`.

    `pair_features` is the number of features of a labelled edge.
    """
    width = outputs if config.task == "nodes" else config.hidden
    if isinstance(inputs, Schema):
        norm: Literal["none", "batch", "layer"] = "batch" if config.batch_norm else "layer" if config.layer_norm else "none"
        made: Gnn | RelationalGnn = RelationalGnn(
            config.model, inputs, config.hidden, config.layers, width, config.dropout, config.input_dropout, norm, config.heads,
            config.featureless, seed, blocks,
        )  # fmt: skip
    else:
        made = build(config, inputs, width, seed)
    return paired(config, made, outputs, pair_features)


def paired(config: TrainOptions, encoder: Gnn | RelationalGnn, outputs: int, pair_features: int = 0) -> Gnn | RelationalGnn | PairModel:
    """Return the model of the task of a configuration: the encoder with a decoder of links or of edges, or itself."""
    if config.task == "links":
        return LinkModel(encoder, config.decoder, config.hidden)
    return EdgeModel(encoder, config.hidden, pair_features, outputs) if config.task == "edges" else encoder


def sampled_scoring(config: TrainOptions, view: View) -> BatchScoring:
    """Return the mini-batches of sampled scores: `eval_fanouts` neighbors, by edge weight where exact inference weighs them."""
    fanouts = config.eval_fanouts or (_EVALUATED,) * config.layers
    weighted = make_sampler(config).estimates_weighted_means and view.all_rows().adjacency.weighted
    return BatchScoring(Sage(fanouts, weighted=weighted), config.batch_size, (config.seed + _SCORING_SEED) % 2**64, config.eval_seeds)


def check_scores(config: TrainOptions, view: View, edges: EdgeTask | None = None) -> None:
    """Raise `UsageError` if there is no split or too few classes to score, or to stop by; held-out edges are no splits of the graph."""
    if config.metric == "rocauc" and config.target == "class":
        check_two_classes(view.num_classes)
    has, what = (view.share.masks, f"graph {view.name!r}") if edges is None else (edges.table.masks, edges.table.name)
    for split in () if config.task == "links" else config.eval_splits:
        if split not in has:
            raise UsageError(f"eval_splits: {what} has no {split} split; it has {', '.join(has) or 'none'}")
    if config.patience and config.task != "links" and "val" not in has:
        raise UsageError(f"patience {config.patience} counts scores of val, and {what} has no val split; use patience 0")


def check_seeds(name: str, seeds: np.ndarray, labels: np.ndarray | None) -> None:
    """Raise `UsageError` if there is no vertex to train on, or none of them has a label; a split that the user names may be empty."""
    if not len(seeds):
        raise UsageError(f"the seeds choose no vertex of graph {name!r} to train on; use seeds all, or a split that holds some")
    if labels is not None and not has_label(labels).any():
        raise UsageError(f"none of the {len(seeds)} seeds of graph {name!r} has a label to train on; use another label, or other seeds")


def check_labels(name: str, labels: np.ndarray | None, num_classes: int) -> None:
    """Raise `UsageError` if a graph has no labels, or fewer than two classes; other labels need one output."""
    if labels is None or num_classes < (2 if labels.ndim == 1 else 1):
        raise UsageError(f"graph {name!r} has no labels to train on; it needs at least two classes")
