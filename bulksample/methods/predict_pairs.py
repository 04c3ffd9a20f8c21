"""Outputs of pairs of vertices by the model of a checkpoint: labels of edges, or scores of links.

    logits_uv = decoder(z_u, z_v, features of the pair),   z = encoder(x, blocks of all neighbors, as they were at the time of the pair)

Pairs need not be edges of the graph.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from .. import backends
from ..data.edge_table import EdgeTable
from ..distributed.comm.threads import SerialComm
from ..errors import DataError, UsageError
from ..evaluation.edges import edge_logits, pair_logits
from ..graph import Graph, Relation
from ..nn.decoders import PairModel
from ..training.edge_task import EdgeTask, check_timeless, width_of
from ..training.setup import whole_type_view
from ..views.type_view import LinkTargets
from .predict_rows import Checkpoint, TypeOutputs, loaded, plain_rows, rule_at, trained_schema


def pair_outputs(
    kept: Checkpoint, graph: Graph, table: EdgeTable, threads: int | None, memory: int | None, at: int | None
) -> TypeOutputs:  # fmt: skip
    """Compute the outputs of the pairs of a table, in its order, each asked about at its time, or all at the time `at`.

    `memory` is the bytes for hidden rows of a plain graph. Raises `UsageError` if the pairs have other features than those of the run, or
    times and the graph has none, or reversely, and `DataError` if a pair names no vertex, or the checkpoint is damaged.
    """
    table = _as_trained(kept, table)
    config, (outputs, features) = kept.config, _widths(kept)
    if (given := width_of(table)) != features:
        wrong = f"the model of {kept.folder} takes {features} features of a pair; {table.name} has {given}"
        raise UsageError(f"{wrong}: use a table with {features or 'no'} features")
    relation = _relation(kept, graph)
    kinds = [graph.type(name) for name in (relation.source, relation.destination)]
    table.check_ends(*((kind.name, kind.count) for kind in kinds))
    if not config.is_relational:
        check_timeless(table, graph.name)
        made, _, z = plain_rows(kept, graph, memory, outputs, features)
        ends = np.stack([table.sources, table.destinations], axis=1)
        return TypeOutputs(kinds[0], pair_logits(cast(PairModel, made), z, ends, table.features))
    timed = rule_at(config, graph, at) is not None
    if timed and at is None and table.times is None:
        raise UsageError(f"graph {graph.name!r} has times, but {table.name} has no column 'time'; give it, or at for all pairs")
    if timed and at is not None:
        if table.times is not None:
            raise UsageError(f"at: {table.name} has a column 'time'; leave one of them out")
        table = replace(table, times=np.full(len(table), at, np.int64))
    rows = np.arange(len(table))
    rule = EdgeTask(table, relation.key, rows).rule(config, graph)
    targets = LinkTargets(graph, relation.key, rule, (), labelled=(table, rows))
    view = whole_type_view(config, targets, backends.make("auto", threads), "")
    model = cast(PairModel, loaded(kept, targets.schema, outputs, graph.name, features))
    logits = edge_logits(model, view, table, rows, SerialComm(), kept.scoring)[1]
    return TypeOutputs(kinds[0], logits, None, table.times)


def _as_trained(kept: Checkpoint, table: EdgeTable) -> EdgeTable:
    """Return a table with the columns of features of the run, in its order, if both have names; `UsageError` if one is missing."""
    names, here = kept.state.get("pair_features", []), table.feature_names
    if not isinstance(names, list):
        raise DataError(f"checkpoint {kept.folder} does not say which features pairs had, or was written by another version")
    if not names or not here or table.features is None:
        return table
    if missing := [str(name) for name in names if name not in here]:
        raise UsageError(f"{table.name}: has no column {', '.join(missing)}, a feature of the run of {kept.folder}; give it")
    return replace(table, features=table.features[:, [here.index(name) for name in names]], feature_names=tuple(names))


def _widths(kept: Checkpoint) -> tuple[int, int]:
    """Return the number of outputs of a pair, and of its features, by the weights; raises `DataError` if they do not fit the options."""
    if kept.config.task == "links":
        return 1, 0
    hidden = kept.config.hidden
    first, last = (kept.weights[name].shape if name in kept.weights else () for name in ("decoder.0.weight", "decoder.1.weight"))
    if len(first) != 2 or len(last) != 2 or {first[0], last[1]} != {hidden} or first[1] < 2 * hidden or not last[0]:
        raise DataError(f"checkpoint {kept.folder} does not hold the weights of a decoder of pairs with {hidden} hidden columns")
    return last[0], first[1] - 2 * hidden


def _relation(kept: Checkpoint, graph: Graph) -> Relation:
    """Return a relation between the types of the pairs of the run."""
    if not kept.config.is_relational:
        return graph.relations[0]
    trained = trained_schema(kept, graph)
    for relation in graph.relations:
        if (relation.source, relation.destination) == (trained["target"], trained["link_target"]):
            return relation
    raise DataError(f"checkpoint {kept.folder} does not say which pairs its model takes, or was written by another version")
