"""Class scores and embeddings of all vertices, by the model of a checkpoint; `bulksample predict` writes them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from numpy.typing import NDArray
from torch import nn

from ..config.metrics import METRICS
from ..data import store
from ..distributed.comm.agree import fingerprint
from ..distributed.comm.threads import SerialComm
from ..errors import DataError, UsageError
from ..evaluation.evaluate import accuracies, overlap_warnings, score_logits
from ..evaluation.exact import exact_rows
from ..graph import Graph, VertexType
from ..log import warn
from ..nn.decoders import LinkModel
from ..nn.model import Gnn, build
from ..training import checkpoint
from ..training.setup import make_sampler
from ..training.shards import whole_tables
from ..training.sound_state import check_state
from ..training.source import Source, load_graph, shared_fingerprint
from ..views.features import Features
from ..views.whole import WholeShare
from .config import TrainConfig
from .predict_own import own_logits
from .predict_relational import OfType, relational_outputs

Floats = NDArray[Any]
_OTHER_ROWS = "the run had another graph, or this one before a change; types without features ({}) take its embedding of each vertex number"


class Prediction(NamedTuple):
    """The output of a model for every vertex of a graph."""

    logits: Floats | None  # float32, shape (n, outputs): softmax of a row gives probabilities of classes, the logistic function those of
    # several classes at once, and regression predicts them as they are; None for link prediction
    embeddings: Floats | None  # float32, shape (n, hidden): the rows that enter the last layer; None for one layer or your own model
    scores: dict[str, float]  # of each labelled split, by name such as "test_accuracy"
    config: TrainConfig  # configuration of the run that wrote the checkpoint
    step: int  # optimizer steps of the run so far
    path: Path  # the folder that was read
    more: Mapping[str, Floats] = {}  # of a heterogeneous graph: the times of the vertices; the embeddings of both ends of links, by type
    # of splits that the model was trained on, none if the store holds another graph than that of the run; of embeddings of another graph
    warnings: Sequence[str] = ()


def predict(
    graph: Source, path: str | os.PathLike[str], threads: int | None = None, check: str = "auto", model: nn.Module | str | None = None,
    memory: int | None = None, at: int | None = None,
) -> Prediction:  # fmt: skip
    """Compute logits and embeddings of all vertices by exact inference, over all neighbors, with the best weights of a checkpoint.

    Parameters
    ----------
    graph : Graph, or the path of a store
        With features as wide as those of the graph that the model was trained on. Labels are not needed. A heterogeneous graph has the
        relations of the graph of the run; the outputs are those of the type that was predicted.
    path : path
        A folder ``step-...`` that training wrote, or the folder of ``--checkpoint``, whose newest one is taken.
    threads : int, optional
        Threads of torch from now on; unchanged by default.
    check : {"auto", "full", "none"}
        Hashes of the store to check; see `data.store.load`.
    model : nn.Module or str, optional
        For a run that trained a model of your own: the module, which takes the weights of the checkpoint in place, or its factory
        ``package.module:factory``. No code that the checkpoint names is run.
    memory : int, optional
        Bytes for hidden rows; by default a quarter of the free memory. Rows beyond it, and then the outputs, are maps of unnamed files.
    at : int, optional
        The time at which every vertex of a heterogeneous graph with times is asked about; by default its own, as in training. Nothing
        later is read.

    Raises
    ------
    UsageError
        If there is no checkpoint, its method holds no model of the whole graph, the features have another width, or `model` is missing,
        does not fit the checkpoint, or was given for a model of ours; also if logits are not finite.
    DataError
        If the checkpoint or the store is damaged.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    folder, (tensors, state) = checkpoint.read(path)
    check_state(folder, state)
    config = _config(folder, state)
    name, plain = (graph.name, graph.plain) if isinstance(graph, Graph) else (str(graph), store.manifest(graph).plain)
    config.check_graph(name, plain)
    best = any(name.startswith("best.") for name in tensors)
    weights = {name.partition(".")[2]: tensor for name, tensor in tensors.items() if name.startswith("best." if best else "model.")}
    weights |= whole_tables(folder, state, "best" if best else "model")
    if config.is_relational:
        if model is not None or memory is not None:
            raise UsageError(f"model and memory are for plain graphs; the checkpoint {folder} holds a {config.model}: leave them out")
        typed = graph if isinstance(graph, Graph) else store.load(graph, check=check)
        return _typed_prediction(config, typed, relational_outputs(config, weights, state, typed, folder, threads, at), state, folder)
    if at is not None:
        raise UsageError("at is for heterogeneous graphs with times; leave it out")
    before = load_graph(graph, None, check=check)
    opened = before if before.labels is None else before.with_label(config.label, config.target)
    step = int(state["progress"]["steps"])
    hidden: torch.Tensor | None = None
    if config.is_own_model:
        logits = own_logits(config, model, weights, state, opened, folder, threads)
    else:
        if model is not None:
            raise UsageError(f"the checkpoint {folder} holds a model of ours, {config.model}; leave model out")
        features = Features(opened, config.feature_norm, config.feature_storage)
        share = WholeShare(opened, features, SerialComm(), make_sampler(config).estimates_weighted_means)
        made = _model(config, weights, opened, folder)
        if isinstance(made, LinkModel):
            return Prediction(None, exact_rows(cast(Gnn, made.encoder), share, memory)[1].numpy(), {}, config, step, folder)
        hidden, logits = exact_rows(made, share, memory)
    _refuse_not_finite(logits)
    scores = {} if opened.labels is None else _scores(logits, opened, config.metric)
    warnings = overlap_warnings(scores, config.seeds) if _may_be_graph_of_run(graph, before, state) else []
    embeddings = None if hidden is None else hidden.numpy()
    return Prediction(logits.numpy(), embeddings, scores, config, step, folder, warnings=_warned(warnings))


def _typed_prediction(
    config: TrainConfig, graph: Graph, found: list[OfType], state: dict[str, Any], folder: Path
) -> Prediction:  # fmt: skip
    """Return the prediction of the target type, or of links the embeddings of both ends."""
    step, times = int(state["progress"]["steps"]), found[0].outputs.times
    more: dict[str, Floats] = {} if times is None else {"times": times}
    for _, outputs in found:
        _refuse_not_finite(outputs.logits)
    same = state.get("graph") == shared_fingerprint(graph, SerialComm())
    learned = [own.name for own in graph.types if not own.num_features] if config.featureless == "embedding" else []
    warnings = [] if same or not learned else [_OTHER_ROWS.format(", ".join(learned))]
    if config.task == "links":
        named = {f"embeddings.{kind.name}": outputs.logits.numpy() for kind, outputs in found}
        return Prediction(None, None, {}, config, step, folder, named, _warned(warnings))
    ((kind, outputs),) = found
    scores: dict[str, float] = {}
    if kind.labels is not None or config.label in kind.extra:
        kind = kind.with_label(config.label, config.target)
        scores = _scores(outputs.logits, kind, config.metric)
    warnings += overlap_warnings(scores, config.seeds) if same else []
    return Prediction(outputs.logits.numpy(), outputs.embeddings, scores, config, step, folder, more, _warned(warnings))


def _warned(warnings: list[str]) -> list[str]:
    """Print warnings, and return them."""
    warn(*warnings)
    return warnings


def _refuse_not_finite(logits: torch.Tensor) -> None:
    if bad := int((~torch.isfinite(logits).all(1)).sum()):
        raise UsageError(
            f"the logits of {bad} vertices are not finite; use a checkpoint of a run that converged, or mend eval mode of the model"
        )


def _scores(logits: torch.Tensor, graph: Graph | VertexType, metric: str | None) -> dict[str, float]:
    """Return the accuracy of every split, or the scores of other labels than classes."""
    assert graph.labels is not None
    if graph.target == "class":
        return accuracies(logits, graph.labels, graph.masks, SerialComm())
    return score_logits(logits, graph.labels, graph.masks, graph.name, SerialComm(), metric or METRICS[graph.target or "class"][0])


def _may_be_graph_of_run(source: Source, graph: Graph, state: dict[str, Any]) -> bool:
    """Return False if a store holds another graph than the run; a graph in memory does not know the digest of its store."""
    return isinstance(source, Graph) or state.get("graph") in (shared_fingerprint(source, SerialComm()), fingerprint(graph))


def _config(folder: Path, state: dict[str, Any]) -> TrainConfig:
    try:
        config = TrainConfig.of(**{name: value for name, value in state["config"].items() if name != "form"})  # nothing travels here
        state["progress"]["steps"]
    except (UsageError, KeyError, TypeError) as error:
        raise DataError(f"checkpoint {folder} lacks the configuration of its model, or was written by another version: {error}") from error
    if config.method.startswith("retexo"):
        raise UsageError(f"a checkpoint of {config.method} holds one layer at a time, and {folder} cannot predict; use another method")
    return config


def _model(config: TrainConfig, weights: dict[str, torch.Tensor], graph: Graph, folder: Path) -> Gnn | LinkModel:
    """Return the model of a configuration with the weights of a checkpoint; the number of classes is that of the weights."""
    prefix = "encoder." if config.task == "links" else ""
    last = weights.get(f"{prefix}layers.{config.layers - 1}.bias")
    if last is None:
        raise DataError(f"checkpoint {folder} does not hold the {config.layers} layers of its configuration")
    encoder = build(config, graph.num_features, len(last), 0)
    model = LinkModel(encoder, config.decoder, config.hidden) if config.task == "links" else encoder
    for name, made in model.state_dict().items():
        stored = weights.get(name)
        if stored is None or stored.shape[1:] != made.shape[1:] or (made.dim() < 2 and stored.shape != made.shape):
            raise DataError(f"checkpoint {folder} does not hold the weights {name} of its configuration")
        if stored.shape != made.shape:
            raise UsageError(
                f"the model of {folder} takes {stored.shape[0]} features of a vertex; graph {graph.name!r} has {graph.num_features}: "
                f"use a graph with {stored.shape[0]} features"
            )
    model.load_state_dict(weights)
    return model
