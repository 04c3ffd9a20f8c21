"""Outputs of all vertices by the model of a checkpoint: of a plain graph, of the predicted type, or embeddings of the ends of links.

    logits_v = model(x, blocks of all neighbors of the L hops around v, as they were at the time of v)

Rows are computed layer by layer; in time, and by a module of the user's own, from mini-batches of all neighbors, as exact scores are in
training.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from .. import backends
from ..distributed.comm.threads import SerialComm
from ..errors import DataError, UsageError
from ..evaluation.by_batches import BatchScoring, logits_by_batches, with_rows
from ..evaluation.by_layers import fits_layers, infer_by_layers
from ..evaluation.inference import exact_rows
from ..graph import Graph, VertexType
from ..nn.decoders import PairModel
from ..nn.model import build, evaluation_mode
from ..nn.own_model import OwnModel, make_module
from ..nn.relational import RelationalGnn, Schema
from ..samplers.full import Full
from ..samplers.time_rule import TimeRule
from ..training.link_batches import without_labels
from ..training.setup import make_model, make_sampler, paired, whole_type_view
from ..views.features import Features
from ..views.plain_view import WholeShare, whole_view
from ..views.seed_times import SeedTimes, rule_of, seed_times
from ..views.type_view import TypeTargets, type_targets
from ..views.view import View, as_index
from .config import TrainConfig

Floats = NDArray[Any]


class Checkpoint(NamedTuple):
    """The model of a checkpoint: options, weights and state; the folder names it in messages."""

    config: TrainConfig
    weights: dict[str, torch.Tensor]
    state: dict[str, Any]
    folder: Path

    @property
    def weighted(self) -> bool:
        """True if means are by edge weight."""
        return make_sampler(self.config).estimates_weighted_means

    @property
    def scoring(self) -> BatchScoring:
        """Mini-batches of as many seeds as in training, with their whole neighborhoods of L hops."""
        return BatchScoring(Full((-1,) * self.config.layers), self.config.batch_size)

    def number(self, name: str, what: str, least: int = 1) -> int:
        """Return a whole number of its state; raises `DataError` if there is none."""
        number = self.state.get(name)
        if type(number) is not int or number < least:
            raise DataError(f"checkpoint {self.folder} does not say {what}, or was written by another version")
        return number


class TypeOutputs(NamedTuple):
    """The output of a model for every vertex of a type."""

    kind: VertexType
    logits: torch.Tensor  # float32, shape (n, outputs); of links, their embeddings
    embeddings: Floats | None = None  # float32, shape (n, hidden): the rows that enter the last layer; None for one layer or your own model
    times: NDArray[np.int64] | None = None  # when each vertex was asked about; None if time does not count


def plain_outputs(kept: Checkpoint, graph: Graph, memory: int | None) -> TypeOutputs:
    """Compute the outputs of all vertices of a plain graph, within some bytes for hidden rows; the classes are those of the weights."""
    _, hidden, logits = plain_rows(kept, graph, memory)
    return TypeOutputs(graph.types[0], logits, None if hidden is None else hidden.numpy())


def plain_rows(
    kept: Checkpoint, graph: Graph, memory: int | None, outputs: int = 0, pair_features: int = 0
) -> tuple[nn.Module, torch.Tensor | None, torch.Tensor]:
    """Return the model, and the rows of all vertices that enter the last layer of its encoder and that leave it.

    `outputs` and `pair_features` are those of a decoder of edges.
    """
    config, paired_ends = kept.config, kept.config.task != "nodes"
    features = Features(graph, config.feature_norm, config.feature_storage)
    share = WholeShare(graph, features, SerialComm(), kept.weighted)
    last = kept.weights.get(f"{'encoder.' if paired_ends else ''}layers.{config.layers - 1}.bias")
    if last is None:
        raise DataError(f"checkpoint {kept.folder} does not hold the {config.layers} layers of its configuration")
    encoder = build(config, graph.num_features, len(last), 0)

    def misfit(name: str, stored: torch.Size, made: torch.Size) -> str | None:
        if stored[1:] != made[1:] or len(made) < 2:
            return None
        return (
            f"the model of {kept.folder} takes {stored[0]} features of a vertex; graph {graph.name!r} has {graph.num_features}: "
            f"use a graph with {stored[0]} features"
        )

    made = paired(config, encoder, outputs, pair_features)
    _take_weights(made, kept, misfit)
    return made, *exact_rows(encoder, share, memory)


def own_outputs(kept: Checkpoint, source: nn.Module | str | None, graph: Graph, threads: int | None) -> TypeOutputs:
    """Compute the logits of all vertices of a plain graph by a module of the user's own, which takes the weights of the checkpoint.

    `source` is the module or its factory ``package.module:factory``. Raises `UsageError` if there is none, its weights are not those of the
    checkpoint, or a pass through it fails, and `DataError` if the checkpoint does not name the widths of the module.
    """
    config, folder = kept.config, kept.folder
    if source is None:
        fits = "use model='package.module:factory', or in Python model=your_module, since predict runs no code that a checkpoint names"
        raise UsageError(f"the checkpoint {folder} holds a model of your own, {config.model}; {fits}")
    features, outputs = (kept.number(name, f"how many {name} its model has") for name in ("features", "outputs"))
    if features != graph.num_features:
        wrong = f"the model of {folder} takes {features} features of a vertex; graph {graph.name!r} has {graph.num_features}"
        raise UsageError(f"{wrong}: use a graph with {features} features")
    name = source if isinstance(source, str) else type(source).__name__
    module = make_module(source, features, outputs, 0) if isinstance(source, str) else source
    model = OwnModel(module, name, outputs, config.layers, trains=False)
    weights = model.state_dict()
    for key in sorted({*weights, *kept.weights}):
        here, there = (f"shape {tuple(one[key].shape)}" if key in one else "none" for one in (weights, kept.weights))
        if here != there:
            entry = key.removeprefix("module.")
            raise UsageError(
                f"model {model.name}: {entry} has {here}, in the checkpoint {folder} {there}; use the factory of the run, {config.model}"
            )
    model.load_state_dict(kept.weights)
    view = whole_view(
        without_labels(graph), SerialComm(), backends.make("auto", threads), "", "all", config.feature_norm, kept.weighted,
        config.feature_storage,
    )  # fmt: skip
    model.eval()
    batches = logits_by_batches(model, view, SerialComm(), np.arange(graph.n), kept.scoring)
    return TypeOutputs(graph.types[0], torch.cat([torch.empty(0, outputs), *(logits for _, logits in batches)]))


def typed_outputs(kept: Checkpoint, graph: Graph, threads: int | None, at: int | None) -> list[TypeOutputs]:
    """Compute the outputs of the target type, or of both ends of links, asked about at the time `at`, by default each at its own.

    Raises `UsageError` if the graph has other types or relations than that of the run, or it is unknown when vertices are asked about, and
    `DataError` if the checkpoint does not say what it was trained on.
    """
    config, outputs = kept.config, kept.number("outputs", "which relations its model has", least=0)
    trained = trained_schema(kept, graph)
    backend = backends.make("auto", threads)
    outputs_by_type = []
    for name in dict.fromkeys((trained["target"], trained["link_target"] or trained["target"])):
        kind = graph.type(name)
        bare = replace(kind, labels=np.full(kind.count, -1), num_classes=outputs, masks={})
        times = _times(config, graph, kind, at)
        targets = TypeTargets(graph, bare, "all", times, kept.weighted)
        schema = targets.schema._replace(target=trained["target"], link_target=trained["link_target"])
        view = whole_type_view(config, targets, backend, "", schema)
        made = loaded(kept, schema, outputs, graph.name)
        encoder = cast(RelationalGnn, made.encoder if isinstance(made, PairModel) else made)
        outputs_by_type.append(_outputs_of(encoder, view, kept)._replace(kind=kind))
    return outputs_by_type


def trained_schema(kept: Checkpoint, graph: Graph) -> dict[str, Any]:
    """Return what the model was trained on, `relations`, `target` and `link_target`; raises as `typed_outputs` does."""
    trained = kept.state.get("schema")
    if not isinstance(trained, dict) or trained.keys() != {"relations", "target", "link_target"}:
        raise DataError(f"checkpoint {kept.folder} does not say which relations its model has, or was written by another version")
    _check_relations(trained, graph, kept.folder)
    return trained


def _times(config: TrainConfig, graph: Graph, kind: VertexType, at: int | None) -> SeedTimes | None:
    """Return when each vertex of a type is asked about."""
    if at is None and config.task == "nodes":
        return seed_times(config, graph, kind)
    rule = rule_at(config, graph, at)
    if rule is not None and at is None:
        raise UsageError(
            f"graph {graph.name!r} has times, but ends of links have none of their own; give the time of the embeddings with at"
        )
    return None if rule is None else SeedTimes(np.full(kind.count, at, np.int64), rule)


def rule_at(config: TrainConfig, graph: Graph, at: int | None) -> TimeRule | None:
    """Return the rule of time of a graph; raises `UsageError` if `at` is given and the graph has no times, or it does not fit int64."""
    if at is not None and not -(2**63) <= at < 2**63:
        raise UsageError(f"at: got {at}; use a time that fits int64")
    rule = rule_of(config, graph)
    if rule is None and at is not None:
        raise UsageError(f"at: graph {graph.name!r} has no times; leave it out")
    return rule


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
def _outputs_of(model: RelationalGnn, view: View, kept: Checkpoint) -> TypeOutputs:
    """Return the outputs of every vertex of the target type of a view."""
    kind, times = type_targets(view).kind, type_targets(view).times
    name, config, scoring, deep = kind.name, kept.config, kept.scoring, kept.config.layers > 1
    if fits_layers(model, view, SerialComm()):
        all_rows = infer_by_layers(model, view, SerialComm(), {name: np.arange(kind.count)})
        return TypeOutputs(kind, all_rows.outputs[name], all_rows.hidden[name].numpy() if deep else None)
    loader = view.loader(scoring.sampler, np.arange(kind.count), **scoring.options(view, SerialComm()))
    hidden, logits = [torch.empty(0, config.hidden)], [torch.empty(0, model.outputs)]
    with evaluation_mode(model):
        for minibatch, x in with_rows(loader, view, model):
            before, after = model.last_rows(minibatch.blocks, x)
            rows = as_index(minibatch.seed_rows)
            logits.append(after[name][rows])
            hidden.append(before[name][rows] if deep else hidden[0])
    return TypeOutputs(kind, torch.cat(logits), torch.cat(hidden).numpy() if deep else None, None if times is None else times.of_vertex)


def loaded(kept: Checkpoint, schema: Schema, outputs: int, name: str, pair_features: int = 0) -> nn.Module:
    """Return the model of a graph of relations with the weights of a checkpoint; `name` is that of the graph."""
    made = make_model(kept.config, schema, outputs, 0, pair_features=pair_features)
    model = cast(RelationalGnn, made.encoder if isinstance(made, PairModel) else made)

    def misfit(key: str, stored: torch.Size, shape: torch.Size) -> str:
        part, place = key.removeprefix("encoder.").split(".")[:2]
        of = f"type {model.types[0][int(place)]!r}" if part == "inputs" else key
        return (
            f"the model of {kept.folder} has weights of shape {tuple(stored)} for {of}; graph {name!r} needs {tuple(shape)}: use a graph "
            "with as many features and, of a type without features, as many vertices"
        )

    _take_weights(made, kept, misfit)
    return made


def _take_weights(made: nn.Module, kept: Checkpoint, misfit: Callable[[str, torch.Size, torch.Size], str | None]) -> None:
    """Load the weights of a checkpoint; `misfit` tells why some have another shape, or None if the checkpoint is damaged."""
    for name, tensor in made.state_dict().items():
        stored = kept.weights.get(name)
        if stored is not None and stored.shape == tensor.shape:
            continue
        if stored is None or (why := misfit(name, stored.shape, tensor.shape)) is None:
            raise DataError(f"checkpoint {kept.folder} does not hold the weights {name} of its configuration")
        raise UsageError(why)
    made.load_state_dict(kept.weights)
