"""Repeatable negative examples: the distributions of torch_geometric, drawn with the counter-based stream.

uniform    floor(n u)                       by weight    the first v with w_1 + ... + w_v > u W
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch_geometric.sampler import NegativeSampling

from ...data.random_words import scaled
from ...errors import UsageError
from ...rng import Stream, Substream, as_unit


class SeededNegatives(NegativeSampling):
    """The negatives of one mini-batch; a draw depends on (seed, epoch, mini-batch, endpoint, position) alone."""

    def __init__(self, law: NegativeSampling, stream: Stream, minibatch: int, epoch: int) -> None:
        super().__init__(law.mode, law.amount, law.src_weight, law.dst_weight)
        self._stream, self._minibatch, self._epoch = stream, minibatch, epoch

    def sample(self, num_samples: int, endpoint: Literal["src", "dst"], num_nodes: int | None = None) -> torch.Tensor:
        """Draw `num_samples` vertices: int64. Like torch_geometric, this may draw false negatives."""
        weight = self.src_weight if endpoint == "src" else self.dst_weight
        side = ("src", "dst").index(endpoint)
        tag = Substream.PYG_NEGATIVE.tag(self._epoch)
        words = self._stream.words(tag, np.arange(num_samples), vertex=side, minibatch=self._minibatch)
        if weight is None:
            assert num_nodes is not None
            return torch.from_numpy(scaled(words[..., 0], 32, num_nodes).astype(np.int64))
        if num_nodes is not None and weight.numel() != num_nodes:
            raise UsageError(f"got {weight.numel()} weights of negatives; use one for each of the {num_nodes} vertices")
        ends = np.cumsum(weight.cpu().double().numpy())
        return torch.from_numpy(np.searchsorted(ends, as_unit(words) * ends[-1], side="right"))
