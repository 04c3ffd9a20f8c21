"""Logits of all vertices by a module of the user's own, from mini-batches of all neighbors, as its exact scores are made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from .. import backends
from ..distributed.comm.threads import SerialComm
from ..errors import DataError, UsageError
from ..evaluation.by_batches import BatchScoring, logits_by_batches
from ..graph import Graph
from ..nn.own_model import OwnModel, make_module
from ..samplers.full import Full
from ..training.link_loss import without_labels
from ..training.setup import make_sampler
from ..views.whole import WholeView
from .config import TrainConfig


def own_logits(
    config: TrainConfig, given: nn.Module | str | None, weights: dict[str, torch.Tensor], state: dict[str, Any], graph: Graph, folder: Path,
    threads: int | None,
) -> torch.Tensor:  # fmt: skip
    """Compute the logits of all vertices: float32, shape (n, outputs).

    Parameters
    ----------
    given : nn.Module or str, optional
        The module, which takes the weights of the checkpoint, or a factory ``package.module:factory``.
    weights, state
        Of the checkpoint.
    folder : path
        Names the checkpoint in messages.

    Raises
    ------
    UsageError
        If there is no module, its weights are not those of the checkpoint, or a pass through it fails.
    DataError
        If the checkpoint does not name the widths of the module.

    Notes
    -----
    A mini-batch has as many seeds as in training, and their whole neighborhoods of L hops.
    """
    if given is None:
        fits = "use model='package.module:factory', or in Python model=your_module, since predict runs no code that a checkpoint names"
        raise UsageError(f"the checkpoint {folder} holds a model of your own, {config.model}; {fits}")
    features, outputs = (_width(state, name, folder) for name in ("features", "outputs"))
    if features != graph.num_features:
        wrong = f"the model of {folder} takes {features} features of a vertex; graph {graph.name!r} has {graph.num_features}"
        raise UsageError(f"{wrong}: use a graph with {features} features")
    name = given if isinstance(given, str) else type(given).__name__
    module = make_module(given, features, outputs, 0) if isinstance(given, str) else given
    model = OwnModel(module, name, outputs, config.layers, trains=False)
    _take_weights(model, weights, folder, config.model)
    view = WholeView(
        without_labels(graph), SerialComm(), backends.make("auto", threads), "", "all", config.feature_norm,
        make_sampler(config).estimates_weighted_means, config.feature_storage,
    )  # fmt: skip
    scoring = BatchScoring(Full((-1,) * config.layers), config.batch_size)
    model.eval()
    found = logits_by_batches(model, view, SerialComm(), np.arange(graph.n), scoring)
    return torch.cat([torch.empty(0, outputs), *(logits for _, logits in found)])


def _width(state: dict[str, Any], name: str, folder: Path) -> int:
    width = state.get(name)
    if type(width) is not int or width < 1:
        raise DataError(f"checkpoint {folder} does not say how many {name} its model has, or was written by another version")
    return width


def _take_weights(model: OwnModel, weights: dict[str, torch.Tensor], folder: Path, trained: str) -> None:
    """Load the weights of a checkpoint; raises `UsageError` that names the first one that does not fit."""
    own = model.state_dict()
    for name in sorted({*own, *weights}):
        here, there = (f"shape {tuple(held[name].shape)}" if name in held else "none" for held in (own, weights))
        if here != there:
            entry = name.removeprefix("module.")
            raise UsageError(
                f"model {model.name}: {entry} has {here}, in the checkpoint {folder} {there}; use the factory of the run, {trained}"
            )
    model.load_state_dict(weights)
