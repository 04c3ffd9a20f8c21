"""Boundary-node sampling: full-graph training in which each halo row is sent with probability q, and then divided by q.

    h_halo[u] = h[u] / q  if u was drawn,   0 otherwise        drawn anew in every epoch, the same in all its layers

The mean that a row aggregates is unbiased, E (1 / d_v) sum over u of h_halo[u] = mean over N(v), with degrees of the whole
graph. Gradients travel back along the same rows. With width f_l sent in layer l, an epoch sends 4 B_q 2 sum_l f_l bytes
(kind "activations"), B_q the rows drawn, q B_sum of them on average. The draw itself needs no message: the random word of
a row names (vertex, receiver, epoch), so both ranks compute it. In the strong form the input does not travel and is
exact; `--form naive` sends and samples it too, as published.

Logits of two strong layers are unbiased. Those of deeper models are not, because activations lie between the layers; nor is
the gradient. With q = 1 this is `full`.

Wan, Li, Li, Kim, Lin, "BNS-GCN: efficient full-graph training of graph convolutional networks with partition-parallelism and random
boundary node sampling", MLSys 2022, arXiv 2203.10983.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from ..distributed.comm.base import Comm
from ..distributed.matrix.halo import MessageFormat
from ..errors import PeerLost, UsageError
from ..rng import Stream, Substream
from ..training.context import TrainingContext
from ..views.full_graph import HaloRows
from .config import TrainConfig
from .full import FullGraphMethod


class BNS(FullGraphMethod):
    """Full-graph training on a sample of the halo."""

    name: ClassVar[str] = "bns"
    elastic: ClassVar[Literal["minibatches", "whole", "no"]] = "no"

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        if config.model not in ("sage", "gcn") and not config.is_own_model:
            fits = "use sage, gcn, or a module of your own that sums or averages neighbors"
            raise UsageError(f"a halo row that is not drawn counts as zero in a sum; got model {config.model}: {fits}")

    def messages(self, comm: Comm) -> MessageFormat:
        self.sample = SampledMessages(self.config.boundary_share, self.config.seed, comm)
        return self.sample

    def view(self, context: TrainingContext) -> None:
        self._comm, self._counts = context.comm, np.zeros(2, np.int64)  # halo rows of all epochs: drawn, and all
        super().view(context)

    def begin_round(self, context: TrainingContext) -> None:
        self.sample.draw(self.rows, context.epoch)
        self._counts += sum(int(mask.sum()) for mask in self.sample.incoming), len(self.rows.halo.vertices)

    def describe(self) -> dict[str, Any]:
        """Return the share of rows that were drawn on all ranks; collective."""
        drawn, rows = np.sum(self._comm.gather_control(self._counts.tolist()), axis=0)
        return super().describe() | {"boundary_share": self.config.boundary_share, "drawn_share": float(drawn / rows) if rows else None}


class SampledMessages(MessageFormat):
    """Exchange only the halo rows that were drawn for the epoch, divided by q.

    `incoming` and `outgoing` are masks for each rank of the rows drawn: rows of this rank's halo that it sends, and rows sent to it.
    """

    def __init__(self, share: float, seed: int, comm: Comm) -> None:
        self._share, self._stream, self._comm = share, Stream(seed), comm

    def draw(self, rows: HaloRows, epoch: int) -> None:
        """Draw the rows of an epoch; local."""
        halo, rank = rows.halo, self._comm.rank
        by_owner = np.split(halo.vertices, np.cumsum(halo.counts)[:-1])
        self.incoming = [self._drawn(vertices, rank, epoch) for vertices in by_owner]
        self.outgoing = [self._drawn(rows.vertices[requested], peer, epoch) for peer, requested in enumerate(halo.requested)]

    def _drawn(self, vertices: np.ndarray, receiver: int, epoch: int) -> np.ndarray:
        words = self._stream.words(Substream.BNS_BOUNDARY.tag(epoch), vertices, vertex=receiver)
        drawn: np.ndarray = words[:, 0] < self._share * 2**32
        return drawn

    def pack(self, rows: np.ndarray, peer: int, key: str) -> np.ndarray:
        drawn: np.ndarray = rows[(self.outgoing if key.endswith("forward") else self.incoming)[peer]]
        return drawn

    def unpack(self, message: np.ndarray, count: int, width: int, peer: int, key: str) -> np.ndarray:
        drawn = (self.incoming if key.endswith("forward") else self.outgoing)[peer]
        if len(message) != drawn.sum():
            raise PeerLost(f"rank {peer} sent {len(message)} of {count} rows; {drawn.sum()} were drawn")
        rows = np.zeros((count, width), message.dtype)
        rows[drawn] = message / self._share
        return rows
