"""AdaQP: full-graph training whose messages are rounded at random, each to a number of bits chosen for it.

Hidden rows and the gradients of halo rows travel as codes of 2, 4 or 8 bits (`rounded_messages`). Every c epochs their widths are
chosen anew (`assignment`), from the noise that each message adds and the time that it takes. Before the first choice all have 8 bits.
Limit: 32 bits is `full`. The published ablation: `--bits 32 --no-overlap` (vanilla), `--no-overlap` (quantised only),
`--bits 32` (overlapped only), and neither.

References
----------
Wan, Zhao, Wu, "Adaptive message quantization and parallelization for distributed full-graph GNN training", MLSys 2023.
Left out of the published code: noise and header on different grids, codes that overflow, traces of evaluations.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch

from ... import backends
from ...distributed.comm.base import Comm
from ...distributed.matrix.codec import codec_named
from ...distributed.matrix.halo import MessageFormat
from ...errors import UsageError
from ...rng import Purpose, Stream, tag
from ...training.context import TrainingContext
from ..config import TrainConfig
from ..full import FullGraphMethod
from .assignment import Assignment, coefficients
from .rounded_messages import CodedMessages, RoundedMessages, RowNames, number
from .widths import CLASSES, links_of


class AdaQP(FullGraphMethod):
    """Full-graph training with quantised messages."""

    name: ClassVar[str] = "adaqp"
    elastic: ClassVar[Literal["minibatches", "whole", "no"]] = "whole"
    models: ClassVar[Literal["any", "layers", "own"]] = "layers"

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        if config.message_coding == "feedback" and config.message_rounding != "nearest":
            raise UsageError("error feedback needs rounding to nearest; got message_rounding stochastic: use message_rounding nearest")
        if config.message_coding != "plain" and (config.checkpoint or config.bits in ("16", "32")):
            raise UsageError(
                "a checkpoint does not hold the rows that difference coding and error feedback remember, and 16 or 32 bits need neither; "
                "use message_coding plain, or bits below 16 and no checkpoint"
            )
        self._rounded: RoundedMessages | None = None
        self._assignment: Assignment | None = None

    def messages(self, comm: Comm) -> MessageFormat:
        config = self.config
        if config.bits == "32":
            return MessageFormat()
        if config.bits == "16":
            return CodedMessages(codec_named("bf16"))
        self._rounded = RoundedMessages(
            backends.make(config.backend, torch.get_num_threads()), config.seed, comm.rank, config.message_header == "fp32",
            config.message_rounding == "nearest", config.message_coding, self._default_widths,
        )  # fmt: skip
        return self._rounded

    def view(self, context: TrainingContext) -> None:
        super().view(context)
        config, comm = self.config, context.comm
        if self._rounded is None:
            return
        halo = self.rows.halo
        requested = [self.rows.vertices[rows] for rows in halo.requested]
        self._rounded.names = RowNames(requested, np.split(halo.vertices, np.cumsum(halo.counts)[:-1]))
        if config.bits in ("uniform", "adaptive"):
            weights = coefficients(self.rows, config.model == "gcn", config.noise_weights, comm)
            links, uniform = links_of(config.links, comm), config.bits == "uniform"
            self._assignment = Assignment(comm, self._rounded, halo, weights, links, config.variance_weight, uniform)

    def begin_round(self, context: TrainingContext) -> None:
        rounded, epoch, every = self._rounded, context.epoch, self.config.reassign_every
        if rounded is None:
            return
        rounded.epoch = epoch
        if self.config.bits == "random" and epoch % every == 0:
            rounded.sent.clear()
            rounded.received.clear()
        if self._assignment is not None:
            self._assignment.begin(epoch)
            rounded.traced = {} if (epoch + 1) % every == 0 and not context.step else None

    def combine_gradients(self, context: TrainingContext, sums: torch.Tensor) -> torch.Tensor:
        """Bring the traced ranges to rank 0 first, so that a checkpoint of this step holds them."""
        if self._assignment is not None:
            self._assignment.note(context.epoch)
        return super().combine_gradients(context, sums)

    def describe(self) -> dict[str, Any]:
        tables = [] if self._rounded is None else list(self._rounded.sent.values())
        rows = sum(len(bits) for bits in tables)
        mean = sum(int(bits.sum()) for bits in tables) / rows if rows else None
        assignments = 0 if self._assignment is None else self._assignment.count
        return {**super().describe(), "bits": self.config.bits, "mean_bits": mean, "assignments": assignments}

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {} if self._assignment is None else self._assignment.state_dict()

    def load_state_dict(self, tensors: dict[str, torch.Tensor]) -> None:
        if self._assignment is not None and tensors:
            self._assignment.load_state_dict(tensors)

    def _default_widths(self, key: str, names: np.ndarray, receiver: int) -> np.ndarray:
        """Return widths before any assignment: fixed, 8, or drawn anew every c epochs, alike on both ranks."""
        bits = self.config.bits
        if bits != "random":
            return np.full(len(names), int(bits) if bits.isdigit() else 8, np.uint8)
        assert self._rounded is not None
        period = self._rounded.epoch // self.config.reassign_every
        words = Stream(self.config.seed).words(tag(Purpose.WIDTH, number(key), period), 0, vertex=names, minibatch=receiver)
        widths: np.ndarray = np.array(CLASSES, np.uint8)[(words[:, 0].astype(np.uint64) * np.uint64(3)) >> np.uint64(32)]
        return widths
