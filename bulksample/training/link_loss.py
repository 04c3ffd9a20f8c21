"""Link prediction as the task of a method: its loss, and the held-out edges that a store brings.

loss = sum over edges (u, v) of a step of  -log s(score(u, v)) - log s(-score(u, w)),   s the logistic function, over 2 b examples
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
import torch.nn.functional as F

from ..data.edge_split import Links
from ..errors import UsageError
from ..graph import Graph
from ..nn.decoders import LinkModel
from ..views.view import as_index

if TYPE_CHECKING:
    from .batches import Step
    from .loop import Trainer
    from .setup import Source


def held_out(source: Source) -> Links:
    """The held-out edges of a store; raises `UsageError` where there are none."""
    if isinstance(source, Graph):
        raise UsageError("held-out edges lie beside a store; a directory that `bulksample data split-edges` wrote would fit")
    return Links.load(source)


def without_labels(graph: Graph) -> Graph:
    """The graph as link prediction sees it: vertices have no class and are in no split."""
    return replace(graph, labels=np.full(graph.n, -1, np.int64), num_classes=0, masks={})


def link_loss(trainer: Trainer, step: Step) -> tuple[torch.Tensor | None, float]:
    """The summed loss of a step whose seeds are sources, destinations and other destinations; and of how many examples."""
    minibatch = step.minibatch
    if minibatch is None or not len(minibatch.seed_rows):
        return None, 0
    assert step.x is not None
    model = cast(LinkModel, trainer.model)
    with trainer.place.arithmetic():
        z = model(minibatch.blocks, step.x, trainer.view.degrees(minibatch.vertices)).float()
    true, false = model.scores(z, as_index(minibatch.seed_rows))
    return F.softplus(-true).sum() + F.softplus(false).sum(), 2 * len(true)
