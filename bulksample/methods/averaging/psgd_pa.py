"""PSGD-PA: periodic averaging over METIS parts, the baseline of LLCG and of TMA.

Few edges are cut, so neighbourhoods stay; parts differ from each other, and with a part its classes are lost. Its error does not
vanish with more steps where local gradients differ from the global one (see `llcg`).

Ramezani et al., "Learn locally, correct globally: a distributed algorithm for training graph neural networks", ICLR 2022.
"""

from __future__ import annotations

from typing import ClassVar

from .method import Averaging


class PsgdPa(Averaging):
    """Parallel SGD with periodic averaging."""

    name: ClassVar[str] = "psgd-pa"
    deal: ClassVar[str] = "metis"
