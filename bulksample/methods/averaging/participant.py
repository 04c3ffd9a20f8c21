"""The contract of a plane: who the parties of model averaging are, and how weights travel between them.

A vector is the weights of a model as float32, and four scalars after them: seeds in the losses since the last average, their summed
loss, the wish to stop, and what the trainer weighs in the average.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...nn.model import Model
from ...training.batches import BatchSource, MiniBatchSource
from ...training.isolated_batches import IsolatedBatches
from .dealing import Cut

if TYPE_CHECKING:
    from ...loader import BulkLoader
    from ...training.loop import Trainer
    from .method import Averaging

SCALARS = 4


@dataclass(frozen=True, eq=False)
class Dealt:
    """What the server found: the part of each vertex and the split to train on; or why it could not."""

    assignment: np.ndarray = field(default_factory=lambda: np.empty(0, np.int32))
    split: str = ""
    fault: str = ""
    cut: Cut | None = None  # how vertices of a part are dealt to others


class Participant:
    """One party of model averaging.

    Attributes
    ----------
    trainers : int
    serves : bool
        Whether this process averages and evaluates.
    part : int, optional
        What this process trains on; None for a server that does not train.
    """

    trainers: int
    serves: bool
    part: int | None

    def share(self, dealt: Dealt | None) -> tuple[np.ndarray | None, str]:
        """What the server dealt: the vertices of the own part, ascending, or None for the whole graph; and the split."""
        raise NotImplementedError

    def dealt_anew(self) -> np.ndarray | None:
        """The vertices of the own part, where others were dealt to it since the last call."""
        return None

    def batches(self, trainer: Trainer) -> BatchSource:
        """The steps of an epoch."""
        raise NotImplementedError

    def settle(self, trainer: Trainer) -> None:
        """Make the next steps on another view of the trainer."""
        raise NotImplementedError

    def end_step(self, trainer: Trainer, method: Averaging, sums: torch.Tensor) -> torch.Tensor:
        """Average where it is time to; seeds, summed loss and wishes to stop that became known, of all trainers: shape (3,)."""
        raise NotImplementedError

    def told_by_server(self, scores: dict[str, float]) -> dict[str, float]:
        """The server's scores, where they are to be known."""
        return scores

    def before_save(self, trainer: Trainer) -> None:
        """Hand the server what only trainers know."""

    def meet(self, trainer: Trainer) -> None:
        """Before the first round of a run, wait until all parties are there."""

    def begin_round(self, trainer: Trainer) -> None:
        """Take back what was put into a checkpoint, once."""

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {}

    def load_state_dict(self, tensors: dict[str, torch.Tensor]) -> None:
        pass

    def close(self) -> None:
        """No more averages follow."""

    def describe(self) -> dict[str, Any]:
        return {"trainers": self.trainers}


def steps_on(trainer: Trainer, loader: BulkLoader | None, steps: int, what: dict[str, Any]) -> IsolatedBatches:
    """So many steps an epoch on the minibatches of a loader, or on nothing."""
    made = IsolatedBatches(what, lambda: None)
    made.train_on(None if loader is None else MiniBatchSource(loader, trainer.view, trainer.ledger), steps)
    return made


def _tensors(model: Model) -> list[torch.Tensor]:
    """Parameters, and statistics of a batch norm."""
    return [*model.parameters(), *(buffer for buffer in model.buffers() if buffer.is_floating_point())]


def vector_of(model: Model) -> np.ndarray:
    """All weights of a model: float32, shape (|theta|,)."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in _tensors(model)]).cpu().numpy()


def load_vector(model: Model, vector: np.ndarray) -> None:
    """Put back what `vector_of` made."""
    put(_tensors(model), vector)


def put(tensors: list[torch.Tensor], vector: np.ndarray) -> None:
    """Fill tensors with consecutive numbers."""
    at, numbers = 0, torch.from_numpy(np.array(vector, np.float32))
    for tensor in tensors:
        tensor.detach().copy_(numbers[at : at + tensor.numel()].view_as(tensor))
        at += tensor.numel()
