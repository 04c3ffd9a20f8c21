"""Host reads of device counters while GPUs of several ranks sample a bulk, each wait in one place.

Message lengths must be on the host before a message is sent. All else stays on the GPU: sizes that are not known are bounded, and what
other ranks promised is checked with the next number that is read.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ...errors import PeerLost
from ..tensor_comm import TensorComm
from .cuda_context import CudaContext


class BulkReads:
    """Read numbers from the GPU during one bulk, and check with them what other ranks promised in messages over `over`."""

    def __init__(self, cuda: CudaContext, over: TensorComm) -> None:
        self._cuda, self._over = cuda, over
        self._checks: list[tuple[torch.Tensor, list[int], str]] = []
        self.minibatches_of: dict[int, int] = {}

    def check(self, promised: torch.Tensor, came: Sequence[int], of: str) -> None:
        """Have the next read compare numbers on the GPU, int64, with those that came; `of` names what was promised."""
        self._checks.append((promised, list(came), of))

    def read(self, numbers: torch.Tensor) -> np.ndarray:
        """Wait for int64 numbers, 1-d, and return them; compare what was to be checked.

        Raises `PeerLost` if another rank sent less or more than it promised, or if messages do not arrive before the deadline.
        """
        checks, self._checks = self._checks, []
        self._over.settle()
        together = torch.cat([numbers, *(promised for promised, _, _ in checks)])
        found = self._cuda.kernels.get(self._cuda.array(together))
        at = len(numbers)
        for _, came, of in checks:
            promised, at = found[at : at + len(came)].tolist(), at + len(came)
            if promised != came:
                told = [", ".join(map(str, numbers)) for numbers in (promised, came)]
                raise PeerLost(f"{told[0]} {of} were promised; {told[1]} came")
        return found[: len(numbers)]
