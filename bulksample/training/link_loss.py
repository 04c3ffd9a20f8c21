"""Link prediction: its loss, and the held-out edges of a store.

loss = sum over edges (u, v) of a step of  -log s(score(u, v)) - log s(-score(u, w)),   s the logistic function, over 2 b examples
"""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
import torch.nn.functional as F

from ..data.held_out_links import HeldOutLinks
from ..data.link_split import LinkGraph
from ..errors import UsageError
from ..graph import Graph
from ..nn.decoders import LinkModel
from ..views.view import as_index
from .batches import StepBatch
from .context import TrainingContext
from .source import Source


def held_out(source: Source) -> HeldOutLinks:
    """Return the held-out edges that a graph in memory has from `hold_out`, or those of a store; `UsageError` if there are none."""
    if isinstance(source, LinkGraph) and source.held_out is not None:
        return source.held_out
    if isinstance(source, Graph):
        raise UsageError(
            f"graph {source.name!r} in memory has no held-out edges; use data.link_split.hold_out(graph, ...), or a directory that "
            "`bulksample data split-edges` wrote"
        )
    return HeldOutLinks.load(source)


def check_ranking(metric: str, links: HeldOutLinks) -> None:
    """Raise `UsageError` for ``hits@k`` of more ranks than an edge has negatives: every edge would be a hit."""
    _, _, k = metric.partition("@")
    for split, negatives in links.negatives.items():
        if k and len(negatives) and int(k) > negatives.shape[1]:
            raise UsageError(
                f"metric: got {metric}, and each held-out edge of {split} is ranked among {negatives.shape[1]} negatives, so all would be "
                f"hits; use hits@1 to hits@{negatives.shape[1]}, or mrr"
            )


def without_labels(graph: Graph) -> Graph:
    """Return the graph for link prediction: no vertex has a class or belongs to a split."""
    return graph.replace(labels=np.full(graph.n, -1, np.int64), num_classes=0, masks={})


def link_loss(context: TrainingContext, batch: StepBatch) -> tuple[torch.Tensor | None, float]:
    """Return the summed loss of a batch whose seeds are sources, destinations and negatives, and the number of its examples."""
    minibatch = batch.minibatch
    if minibatch is None or not len(minibatch.seed_rows):
        return None, 0
    assert batch.x is not None
    model = cast(LinkModel, context.model)
    with context.compute.arithmetic():
        z = model(minibatch.blocks, batch.x, context.view.degrees(minibatch.vertices)).float()
    true, false = model.scores(z, as_index(minibatch.seed_rows))
    return F.softplus(-true).sum() + F.softplus(false).sum(), 2 * len(true)
