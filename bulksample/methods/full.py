"""Full-graph training: every step is one pass of the whole graph, its rows in blocks over the ranks.

    g = sum over ranks of d/dtheta sum over own training rows of the loss, over the training rows of all ranks

Hidden rows that other ranks aggregate travel forward, and the gradients of them travel back, in every layer: the exact
baseline of AdaQP, RETEXO and Grappa. With width f_l sent in layer l (kind "activations"), 4 B_sum (f_l forward + f_l backward)
bytes an epoch, B_sum the halo rows of all ranks; nothing for the first layer, whose input never changes (`--form naive`
sends it in every epoch, as published systems do).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import torch
import torch.nn.functional as F

from ..config.train import TrainConfig
from ..distributed.comm.base import Comm
from ..distributed.matrix.halo import MessageFormat, PlainFormat
from ..errors import UsageError
from ..nn.model import Gnn
from ..training.batches import BatchSource, Step, WholeGraphSource
from ..training.method import Method
from ..views.full_graph import FullGraph
from ..views.own_rows import OwnRows
from ..views.partitioned import BlockView
from ..views.view import View

if TYPE_CHECKING:
    from ..training.loop import Trainer


def in_single(config: TrainConfig) -> None:
    """Raise `UsageError` where a pass over all rows at once was asked for in half precision."""
    if config.precision == "bf16":
        raise UsageError("a pass over the whole graph, with what travels, is float32; precision fp32, or tf32 on a device, would fit")


class Full(Method):
    """Synchronous full-graph training on block rows; exact.

    Attributes
    ----------
    shares_features : bool
        Whether the features of halo rows are fetched.
    """

    name: ClassVar[str] = "full"
    graphs: ClassVar[tuple[str, ...]] = ("partitioned",)
    shares_features: ClassVar[bool] = True

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        in_single(config)

    def view(self, view: View, comm: Comm) -> View:
        self.rows = OwnRows(cast(BlockView, view), self.messages(comm), self.config.overlap, self.shares_features)
        self.graph = FullGraph(self.rows, self.config.form == "strong")
        mine = np.isin(self.rows.vertices, view.seeds)
        self.truth = torch.from_numpy(np.where(mine, self.rows.labels, -1)).to(view.where)
        return view

    def messages(self, comm: Comm) -> MessageFormat:
        """How rows of hidden layers travel."""
        return PlainFormat()

    def batches(self, trainer: Trainer) -> BatchSource:
        return WholeGraphSource()

    def loss(self, trainer: Trainer, step: Step) -> tuple[torch.Tensor | None, int]:
        """Every rank takes part in the passes of all, also one without training rows."""
        logits, counted = self.logits(trainer), self.truth >= 0
        return F.cross_entropy(logits[counted], self.truth[counted], reduction="sum"), int(counted.sum())

    def logits(self, trainer: Trainer) -> torch.Tensor:
        """Of the own rows: shape (m, classes); collective."""
        return self.graph(cast(Gnn, trainer.model))

    def describe(self) -> dict[str, Any]:
        own = self.rows
        return {"halo_rows": len(own.halo.vertices), "central_rows": own.central, "own_rows": own.rows}
