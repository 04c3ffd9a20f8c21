"""PSGD-PA: periodic averaging over METIS parts, the baseline of LLCG and of TMA.

METIS cuts few edges, so neighborhoods stay whole. But the parts differ from each other, and losing a part loses its classes. The
error does not vanish with more steps if local gradients differ from the global one (see `llcg`).

Ramezani et al., "Learn locally, correct globally: a distributed algorithm for training graph neural networks", ICLR 2022.
"""

from __future__ import annotations

from typing import ClassVar

from .method import Averaging


class PSGDPA(Averaging):
    """Parallel SGD with periodic averaging."""

    name: ClassVar[str] = "psgd-pa"
    partition_kind: ClassVar[str] = "metis"
