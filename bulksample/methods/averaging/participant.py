# ruff: noqa: B027  # a hook without a body is for participants that need it
"""The contract of a participant in model averaging: a server, a trainer or both, and how weights travel between them.

A vector holds the weights of a model as float32, followed by four scalars: seeds in the losses since the last average, their
summed loss, the number of stop requests, and the trainer's weight in the average. A `RemoteTrainer` sends the number of its list of
vertices instead, and the `TrainerServer` fills in the weight.

In a run whose trainers come and go every vertex has an original part and a present one:

    lend         divide the vertices of a part without a trainer among the present trainers, with the method's partitioner
    give back    return the original vertices of a part to it, from every part that has some of them

Every vertex is in one part at any time. A part without vertices was lent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch

from ...nn.model import Model
from ...training.batches import BatchSource
from ...training.context import TrainingContext
from ...training.weights import batch_counts

SCALARS = 4
SplitPart = Callable[[int, np.ndarray, int], np.ndarray]  # from a part, its vertices and a number of pieces: the piece of each vertex


@dataclass(frozen=True, eq=False)
class Partitioning:
    """The server's partition of the graph. If there is none, `fault` says why: bad data if `damaged`, else bad use."""

    assignment: np.ndarray = field(default_factory=lambda: np.empty(0, np.int32))  # int32, shape (n,): the part of each vertex
    split: str = ""  # the name of the training split
    fault: str = ""
    damaged: bool = False
    split_part: SplitPart | None = None  # divides the vertices of one part again
    count_examples: Callable[[np.ndarray], int] = len  # the training examples of a part, given its vertices


class AveragingRule(Protocol):
    """The formula of an average, which a method provides."""

    def average(self, context: TrainingContext, vectors: list[np.ndarray]) -> np.ndarray:
        """Return the corrected average of the trainers' vectors; the server's model holds it afterwards."""

    def correct(self, context: TrainingContext) -> None:
        """Improve the average that the server's model holds."""


class Participant(ABC):
    """One process of model averaging.

    Attributes
    ----------
    trainers : int
    serves : bool
        True if this process averages and evaluates.
    part : int, optional
        The part that this process trains on; None for a server that does not train.
    """

    trainers: int
    serves: bool
    part: int | None

    @abstractmethod
    def receive_part(self, partitioning: Partitioning | None) -> tuple[np.ndarray | None, str]:
        """Return the vertices of this process's part, ascending, and the split to train on; None as vertices stands for the whole graph.

        The server passes its `partitioning`, a trainer None.
        """

    def new_vertices(self) -> np.ndarray | None:
        """Return the vertices of this trainer's part if the server has changed them since the last call, else None."""
        return None

    @abstractmethod
    def batches(self, context: TrainingContext) -> BatchSource:
        """Return the source of the training steps."""

    def use_view(self, context: TrainingContext) -> None:
        """Take the next mini-batches from the context's view, which changed because `new_vertices` returned some."""

    @abstractmethod
    def end_step(self, context: TrainingContext, rule: AveragingRule, sums: torch.Tensor) -> torch.Tensor:
        """Average if an interval ends with this step. Return sums over trainers that are new since the last call: shape (3,).

        They are the number of seeds, the loss and the number of stop requests; zeros if nothing is new.
        """

    def share_scores(self, scores: dict[str, float]) -> dict[str, float]:
        """Return the server's scores, if this process needs them."""
        return scores

    def before_save(self, context: TrainingContext) -> None:
        """Send the server the state that only trainers have, such as Adam's moments, for a checkpoint."""

    def wait_for_all(self, context: TrainingContext) -> None:
        """Wait before the first round until all participants are present."""

    def begin_round(self, context: TrainingContext) -> None:
        """Restore the state of a checkpoint in the first round after a resume."""

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the tensors that a resumed run needs."""
        return {}

    def load_state_dict(self, tensors: dict[str, torch.Tensor]) -> None:
        """Restore the tensors that `state_dict` returned."""

    def close(self) -> None:
        """End the run for all participants."""

    def describe(self) -> dict[str, Any]:
        """Return the entries for the run's report."""
        return {"trainers": self.trainers}


def weights_of(model: Model) -> list[torch.Tensor]:
    """Return the parameters of a model, its floating-point buffers, and the batch counts of its batch norms."""
    return [*model.parameters(), *(buffer for buffer in model.buffers() if buffer.is_floating_point()), *batch_counts(model)]


def vector_of(model: Model) -> np.ndarray:
    """Return all weights of a model in one vector: float32, shape (|theta|,)."""
    return torch.cat([tensor.detach().reshape(-1).float() for tensor in weights_of(model)]).cpu().numpy()


def load_vector(model: Model, vector: np.ndarray) -> None:
    """Set all weights of a model from the vector that `vector_of` returns."""
    fill(weights_of(model), vector)


def fill(tensors: list[torch.Tensor], vector: np.ndarray) -> None:
    """Copy consecutive numbers of a vector into tensors, rounded for tensors of integers."""
    at, numbers = 0, torch.from_numpy(np.array(vector, np.float32))
    for tensor in tensors:
        part = numbers[at : at + tensor.numel()].view_as(tensor)
        tensor.detach().copy_(part if tensor.is_floating_point() else part.round())
        at += tensor.numel()


class PartTable:
    """The parts of a run: `original` is the part of each vertex when the run began; `split_part` divides the vertices of one."""

    def __init__(self, original: np.ndarray, split_part: SplitPart) -> None:
        self._original, self._present, self._split_part = original, original.copy(), split_part

    @property
    def n(self) -> int:
        """The number of vertices."""
        return len(self._original)

    def members(self, part: int) -> np.ndarray:
        """Return the vertices of a part, ascending: int32."""
        return np.flatnonzero(self._present == part).astype(np.int32)

    def lend(self, part: int, others: list[int]) -> list[int]:
        """Divide the vertices of a part among others; return the parts that received some."""
        vertices = self.members(part)
        if not len(vertices) or not others:
            return []
        self._present[vertices] = np.array(others, np.int32)[self._split_part(part, vertices, len(others))]
        changed: list[int] = np.unique(self._present[vertices]).tolist()
        return changed

    def give_back(self, part: int) -> list[int]:
        """Return its original vertices to a part that was lent; return the parts that lost some."""
        lent = self._original == part
        changed: list[int] = np.unique(self._present[lent & (self._present != part)]).tolist()
        self._present[lent] = part
        return changed
