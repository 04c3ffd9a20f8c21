"""Full-graph training: every step is one pass over the whole graph, with its rows in blocks over the ranks.

    g = 1 / (training rows of all ranks)  sum over ranks of  d/dtheta  sum of the loss over the training rows of the rank

In every layer, a rank sends its hidden rows to the ranks that aggregate them; the backward pass returns their gradients. This is the exact
baseline of AdaQP, RETEXO and Grappa. With width f_l sent in layer l (kind "activations"), an epoch sends
4 B_sum (f_l forward + f_l backward) bytes, B_sum the halo rows of all ranks. The first layer sends nothing, because its
input never changes; `--form naive` sends it in every epoch, as published systems do.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch

from ..distributed.comm.base import Comm
from ..distributed.matrix.halo import MessageFormat
from ..errors import UsageError
from ..graph.labels import as_numbers, without_label
from ..nn.losses import known_rows, summed_loss, summed_shares
from ..training.batches import BatchSource, StepBatch, WholeGraphSource
from ..training.context import TrainingContext
from ..training.method import Method
from ..views.full_graph import FullGraph, HaloRows
from .config import TrainConfig


def require_single_precision(config: TrainConfig) -> None:
    """Raise `UsageError` if half precision was requested for passes over a whole graph."""
    if config.precision == "bf16":
        raise UsageError("a pass over the whole graph computes and sends float32; got precision bf16: use fp32, or tf32 on a device")


class FullGraphMethod(Method):
    """Synchronous full-graph training on block rows; exact. With `shares_features`, ranks fetch the features of their halo rows."""

    name: ClassVar[str] = "full"
    graphs: ClassVar[tuple[str, ...]] = ("partitioned",)
    shares_features: ClassVar[bool] = True
    elastic: ClassVar[Literal["minibatches", "whole", "no"]] = "whole"

    config: TrainConfig

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        require_single_precision(config)

    def view(self, context: TrainingContext) -> None:
        super().view(context)
        view = context.view
        self.rows = HaloRows(view, self.messages(context.comm), self.config.overlap, self.shares_features)
        self.graph = FullGraph(self.rows, self.config.form == "strong")
        is_seed = np.isin(self.rows.vertices, view.seeds)
        self.labels = labels = torch.from_numpy(as_numbers(without_label(self.rows.labels, ~is_seed)))
        labelled = known_rows(labels).nonzero().flatten()
        self._shares = summed_shares(labels[labelled])
        self._labelled, self._labels = labelled.to(view.where), labels[labelled].to(view.where)

    def messages(self, comm: Comm) -> MessageFormat:
        """Return the form in which rows of hidden layers travel."""
        return MessageFormat()

    def batches(self, context: TrainingContext) -> BatchSource:
        return WholeGraphSource()

    def loss(self, context: TrainingContext, batch: StepBatch) -> tuple[torch.Tensor | None, float]:
        """Return the loss of this rank's training rows. A rank without any still takes part in the pass, which is collective."""
        return summed_loss(self.target, self.logits(context)[self._labelled], self._labels), self._shares

    def logits(self, context: TrainingContext) -> torch.Tensor:
        """Return the logits of this rank's rows: shape (m, classes); collective."""
        return self.graph(context.model, context.whole_pass())

    def describe(self) -> dict[str, Any]:
        return {"halo_rows": len(self.rows.halo.vertices), "central_rows": self.rows.central, "own_rows": self.rows.rows}
