"""Class scores and embeddings of all vertices, or scores of pairs, by the model of a checkpoint; `bulksample predict` writes them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from ..config.metrics import METRICS
from ..data import store
from ..data.edge_table import EdgeTable, read_edge_table
from ..distributed.comm.agree import fingerprint
from ..distributed.comm.threads import SerialComm
from ..errors import DataError, UsageError
from ..evaluation.evaluate import accuracies, overlap_warnings, score_logits
from ..graph import Graph, VertexType
from ..log import warn
from ..training import checkpoint
from ..training.shards import whole_tables
from ..training.source import Source, shared_fingerprint
from ..training.state import check_state
from .config import TrainConfig
from .predict_pairs import pair_outputs
from .predict_rows import Checkpoint, Floats, TypeOutputs, own_outputs, plain_outputs, typed_outputs

_OTHER_ROWS = "the run had another graph, or this one before a change; types without features ({}) take its embedding of each vertex number"


class Prediction(NamedTuple):
    """The output of a model for every vertex of a graph, or for pairs of them."""

    logits: Floats | None  # float32, shape (n, outputs): softmax of a row gives probabilities of classes, the logistic function those of
    # several classes at once and of scored links, and regression predicts them as they are; None for link prediction without pairs
    embeddings: Floats | None  # float32, shape (n, hidden): the rows that enter the last layer; None of pairs, one layer or your own model
    scores: dict[str, float]  # of each labelled split, by name such as "test_accuracy"
    config: TrainConfig  # configuration of the run that wrote the checkpoint
    step: int  # optimizer steps of the run so far
    path: Path  # the folder that was read
    # of a heterogeneous graph: the times of the vertices or pairs; the embeddings of both ends of links, by type. Both ends of pairs
    more: Mapping[str, Floats] = {}
    # of splits that the model was trained on, none if the store holds another graph than that of the run; of embeddings of another graph
    warnings: Sequence[str] = ()


def predict(
    graph: Source, path: str | os.PathLike[str], threads: int | None = None, check: str = "auto", model: nn.Module | str | None = None,
    memory: int | None = None, at: int | None = None, pairs: Any = None,
) -> Prediction:  # fmt: skip
    """Compute logits and embeddings of all vertices by exact inference, over all neighbors, with the best weights of a checkpoint.

    The logits are those of `pairs`, if given, in their order.

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
        The time at which every vertex, or pair, of a heterogeneous graph with times is asked about; by default its own, as in training.
        Nothing later is read.
    pairs : path, dict, pandas.DataFrame or pyarrow.Table, optional
        Pairs of vertices, edges or not, whose labels a run of the task ``edges`` predicts, or whose links one of the task ``links`` scores:
        `source`, `destination`, `time` if the graph has times and `at` is not given, and the features of the run. Labels and splits are not
        read. See `bulksample.data.edge_table`.

    Raises
    ------
    UsageError
        If there is no checkpoint, its method holds no model of the whole graph, the features have another width, or `model` is missing,
        does not fit the checkpoint, or was given for a model of ours; also if logits are not finite. If `pairs` are missing or do not suit
        the task, or have other features than those of the run.
    DataError
        If the checkpoint, the store or the table of pairs is damaged.
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
    kept = Checkpoint(config, weights, state, folder)
    if config.is_relational and (model is not None or memory is not None):
        raise UsageError(f"model and memory are for plain graphs; the checkpoint {folder} holds a {config.model}: leave them out")
    if not config.is_relational and at is not None:
        raise UsageError("at is for heterogeneous graphs with times; leave it out")
    if model is not None and not config.is_own_model:
        raise UsageError(f"the checkpoint {folder} holds a model of ours, {config.model}; leave model out")
    if pairs is None and config.task == "edges":
        raise UsageError(f"the checkpoint {folder} predicts labels of edges; give pairs=TABLE, with source and destination")
    if pairs is not None and config.task == "nodes":
        raise UsageError(f"pairs: got a table, and the checkpoint {folder} predicts labels of vertices; leave it out")
    label = config.label if config.task == "edges" else None  # a column that is none of the features
    table = None if pairs is None else read_edge_table(pairs, "pairs", label=label, labelled=False)
    opened = graph if isinstance(graph, Graph) else store.load(graph, check=check)
    if table is not None:
        outputs = [pair_outputs(kept, opened, table, threads, memory, at)]
    elif config.is_relational:
        outputs = typed_outputs(kept, opened, threads, at)
    else:
        outputs = [own_outputs(kept, model, opened, threads) if config.is_own_model else plain_outputs(kept, opened, memory)]
    if opened.plain:  # one in memory does not know the digest of its store
        same = isinstance(graph, Graph) or state.get("graph") in (shared_fingerprint(graph, SerialComm()), fingerprint(opened))
    else:
        same = state.get("graph") == shared_fingerprint(opened, SerialComm())
    return _prediction(kept, opened, outputs, same, table)


def _prediction(kept: Checkpoint, graph: Graph, outputs_by_type: list[TypeOutputs], same: bool, pairs: EdgeTable | None) -> Prediction:
    """Return the prediction of the predicted type or of pairs, or of links the embeddings of both ends.

    `same` if the graph may be that of the run.
    """
    config, first = kept.config, outputs_by_type[0]
    for outputs in outputs_by_type:
        if bad := int((~torch.isfinite(outputs.logits).all(1)).sum()):
            fits = "use a checkpoint of a run that converged, or mend eval mode of the model"
            raise UsageError(f"the logits of {bad} {'vertices' if pairs is None else 'pairs'} are not finite; {fits}")
    learned = [kind.name for kind in graph.types if not kind.num_features] if config.featureless == "embedding" else []
    warnings = [] if same or not learned else [_OTHER_ROWS.format(", ".join(learned))]
    logits: Floats | None = first.logits.numpy()
    kind, embeddings, scores = first.kind, first.embeddings, dict[str, float]()
    more: dict[str, Floats] = {} if first.times is None else {"times": first.times}
    if pairs is not None:
        more = {"source": pairs.sources, "destination": pairs.destinations, **more}
    elif config.task == "links":
        logits, embeddings = None, logits if graph.plain else None
        more = {} if graph.plain else {f"embeddings.{outputs.kind.name}": outputs.logits.numpy() for outputs in outputs_by_type}
    elif kind.labels is not None or config.label in kind.extra:
        kind = kind.with_label(config.label, config.target)
        scores = _scores(first.logits, kind, graph.name if graph.plain else kind.name, config.metric)
    warnings += overlap_warnings(scores, config.seeds) if same else []
    warn(*warnings)
    return Prediction(logits, embeddings, scores, config, int(kept.state["progress"]["steps"]), kept.folder, more, warnings)


def _scores(logits: torch.Tensor, kind: VertexType, name: str, metric: str | None) -> dict[str, float]:
    """Return the accuracy of every split, or the scores of other labels than classes."""
    assert kind.labels is not None
    if kind.target == "class":
        return accuracies(logits, kind.labels, kind.masks, SerialComm())
    return score_logits(logits, kind.labels, kind.masks, name, SerialComm(), metric or METRICS[kind.target or "class"][0])


def _config(folder: Path, state: dict[str, Any]) -> TrainConfig:
    try:
        kept = {name: value for name, value in state["config"].items() if name != "form"}  # nothing travels here
        table = {"edge_labels": "(of the run)"} if kept.get("task") == "edges" else {}  # a checkpoint does not hold the path
        config = TrainConfig.of(**kept | table)
        state["progress"]["steps"]
    except (UsageError, KeyError, TypeError) as error:
        raise DataError(f"checkpoint {folder} lacks the configuration of its model, or was written by another version: {error}") from error
    if config.method.startswith("retexo"):
        raise UsageError(f"a checkpoint of {config.method} holds one layer at a time, and {folder} cannot predict; use another method")
    return config
