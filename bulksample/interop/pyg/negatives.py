"""Negative examples that anyone can repeat: torch_geometric's laws, drawn by the counters of the stream.

uniform    floor(n u)                       by weight    the first v with w_1 + ... + w_v > u W
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch_geometric.sampler import NegativeSampling

from ...data.random_words import scaled
from ...errors import UsageError
from ...rng import Purpose, Stream, as_unit


class SeededNegatives(NegativeSampling):
    """The negatives of one minibatch: a draw is named by (seed, epoch, minibatch, endpoint, place)."""

    def __init__(self, law: NegativeSampling, stream: Stream, minibatch: int, epoch: int) -> None:
        super().__init__(law.mode, law.amount, law.src_weight, law.dst_weight)
        self._stream, self._minibatch, self._epoch = stream, minibatch, epoch

    def sample(self, num_samples: int, endpoint: Literal["src", "dst"], num_nodes: int | None = None) -> torch.Tensor:
        """`num_samples` vertices: int64. They may be false negatives, as in torch_geometric."""
        weight = self.src_weight if endpoint == "src" else self.dst_weight
        side = ("src", "dst").index(endpoint)
        words = self._stream.words(
            Purpose.NEGATIVE, np.arange(num_samples), vertex=side, minibatch=self._minibatch, layer=1, epoch=self._epoch
        )
        if weight is None:
            assert num_nodes is not None
            return torch.from_numpy(scaled(words[..., 0], 32, num_nodes).astype(np.int64))
        if num_nodes is not None and weight.numel() != num_nodes:
            raise UsageError(f"weights of negatives must be one for each of the {num_nodes} vertices; got {weight.numel()}")
        ends = np.cumsum(weight.cpu().double().numpy())
        return torch.from_numpy(np.searchsorted(ends, as_unit(words) * ends[-1], side="right"))
