"""Logits and embeddings of one vertex type, or embeddings of the ends of links, by a model of heterogeneous graphs.

    logits_v = model(x, blocks of all neighbors of the L hops around v, as they were at the time of v)

Rows are computed layer by layer, or in time from mini-batches, as exact scores are in training.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from .. import backends
from ..distributed.comm.threads import SerialComm
from ..errors import DataError, UsageError
from ..evaluation.by_batches import BatchScoring, with_rows
from ..evaluation.by_layers import fits_layers, infer_by_layers
from ..graph import Graph, VertexType
from ..nn.decoders import LinkModel
from ..nn.model import evaluation_mode
from ..nn.relational import RelationalGnn, Schema
from ..samplers.full import Full
from ..training.relational_setup import relational_model
from ..training.setup import make_sampler
from ..views.relational import RelationalView
from ..views.seed_times import SeedTimes, rule_of, seed_times
from ..views.type_features import whole_features
from ..views.view import as_index
from .config import TrainConfig

Floats = NDArray[Any]


class TypeOutputs(NamedTuple):
    """The output of a model for every vertex of a type."""

    logits: torch.Tensor  # float32, shape (n, outputs); of links, their embeddings
    embeddings: Floats | None  # float32, shape (n, hidden): the rows that enter the last layer; None for one layer
    times: NDArray[np.int64] | None  # when each vertex was asked about; None if time does not count


class OfType(NamedTuple):
    """A type, and the outputs of its vertices."""

    kind: VertexType
    outputs: TypeOutputs


def relational_outputs(
    config: TrainConfig, weights: dict[str, torch.Tensor], state: dict[str, Any], graph: Graph, folder: Path, threads: int | None,
    at: int | None,
) -> list[OfType]:  # fmt: skip
    """Compute the outputs of the target type; of links, those of both ends.

    Parameters
    ----------
    weights, state
        Of the checkpoint.
    folder : path
        Names the checkpoint in messages.
    at : int, optional
        The time at which every vertex is asked about; by default its own, as in training.

    Raises
    ------
    UsageError
        If the graph has other types or relations than that of the run, or it is unknown when vertices are asked about.
    DataError
        If the checkpoint does not say what it was trained on.
    """
    trained = _schema(state, folder)
    _check_relations(trained, graph, folder)
    backend = backends.make("auto", threads)
    found = []
    for name in dict.fromkeys((trained["target"], trained["link_target"] or trained["target"])):
        kind = graph.type(name)
        bare = replace(kind, labels=np.full(kind.count, -1), num_classes=state["outputs"], masks={})
        times = _times(config, graph, kind, at)
        weighted = make_sampler(config).estimates_weighted_means
        view = RelationalView(graph, bare, SerialComm(), backend, "", "all", times, weighted=weighted)
        schema = view.schema._replace(target=trained["target"], link_target=trained["link_target"])
        view.take_features(whole_features(graph, schema.types_of_layers(config.layers)[0], config.feature_norm, config.feature_storage))
        found.append(OfType(kind, _outputs_of(_loaded(config, weights, schema, state["outputs"], graph.name, folder), view, config)))
    return found


def _times(config: TrainConfig, graph: Graph, kind: VertexType, at: int | None) -> SeedTimes | None:
    """Return when each vertex of a type is asked about."""
    if at is not None and not -(2**63) <= at < 2**63:
        raise UsageError(f"at: got {at}; use a time that fits int64")
    if at is None and config.task == "nodes":
        return seed_times(config, graph, kind)
    rule = rule_of(config, graph)
    if rule is None and at is not None:
        raise UsageError(f"at: graph {graph.name!r} has no times; leave it out")
    if rule is not None and at is None:
        raise UsageError(
            f"graph {graph.name!r} has times, but ends of links have none of their own; give the time of the embeddings with at"
        )
    return None if rule is None else SeedTimes(np.full(kind.count, at, np.int64), rule)


def _schema(state: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return what the model was trained on, as `Schema.to_json` wrote it."""
    schema, outputs = state.get("schema"), state.get("outputs")
    if not isinstance(schema, dict) or schema.keys() != {"relations", "target", "link_target"} or type(outputs) is not int:
        raise DataError(f"checkpoint {folder} does not say which relations its model has, or was written by another version")
    return schema


def _check_relations(trained: dict[str, Any], graph: Graph, folder: Path) -> None:
    here, there = [list(relation.key) for relation in graph.relations], trained["relations"]
    if here == there:
        return
    odd = [tuple(key) for key in [*there, *here] if key not in here or key not in there]
    differ = f"differ in {odd[0]}" if odd else "stand in another order"
    raise UsageError(
        f"the model of {folder} was trained on {len(there)} relations, and graph {graph.name!r} has {len(here)}, which {differ}: use one "
        "with the relations of the run"
    )


@torch.no_grad()
def _outputs_of(model: RelationalGnn, view: RelationalView, config: TrainConfig) -> TypeOutputs:
    """Return the outputs of every vertex of the target type of a view."""
    name, deep = view.kind.name, config.layers > 1
    if fits_layers(model, view, SerialComm()):
        all_rows = infer_by_layers(model, view, SerialComm(), {name: np.arange(view.kind.count)})
        return TypeOutputs(all_rows.outputs[name], all_rows.hidden[name].numpy() if deep else None, None)
    scoring = BatchScoring(Full((-1,) * config.layers), config.batch_size)
    loader = view.loader(scoring.sampler, np.arange(view.kind.count), **scoring.options(view, SerialComm()))
    hidden, logits = [torch.empty(0, config.hidden)], [torch.empty(0, model.outputs)]
    with evaluation_mode(model):
        for minibatch, x in with_rows(loader, view, model):
            before, after = model.last_rows(minibatch.blocks, x)
            rows = as_index(minibatch.seed_rows)
            logits.append(after[name][rows])
            hidden.append(before[name][rows] if deep else hidden[0])
    times = None if view.times is None else view.times.of_vertex
    return TypeOutputs(torch.cat(logits), torch.cat(hidden).numpy() if deep else None, times)


def _loaded(
    config: TrainConfig, weights: dict[str, torch.Tensor], schema: Schema, outputs: int, name: str, folder: Path
) -> RelationalGnn:  # fmt: skip
    """Return the encoder of a model with the weights of a checkpoint; `name` is that of the graph."""
    made = relational_model(config, schema, outputs, 0)
    model = made.encoder if isinstance(made, LinkModel) else made
    assert isinstance(model, RelationalGnn)
    for key, own in made.state_dict().items():
        stored = weights.get(key)
        if stored is None:
            raise DataError(f"checkpoint {folder} does not hold the weights {key} of its configuration")
        if stored.shape != own.shape:
            part, place = key.removeprefix("encoder.").split(".")[:2]
            of = f"type {model.types[0][int(place)]!r}" if part == "inputs" else key
            raise UsageError(
                f"the model of {folder} has weights of shape {tuple(stored.shape)} for {of}; graph {name!r} needs {tuple(own.shape)}: use "
                "a graph with as many features and, of a type without features, as many vertices"
            )
    made.load_state_dict(weights)
    return model
