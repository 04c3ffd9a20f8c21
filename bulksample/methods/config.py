"""The configuration of a training run: the options that every method shares, and those of every method.

A new method adds its options class to the bases of `TrainConfig`. No torch is imported here.
"""

from __future__ import annotations

from typing import Self

from pydantic import Field, field_validator, model_validator

from ..config.options import Options
from ..config.train import TrainOptions
from ..errors import unknown
from . import METHODS
from .adaqp.options import AdaQPOptions
from .averaging.options import AVERAGING, AveragingOptions, LLCGOptions, SuperTMAOptions
from .bns.options import BNSOptions
from .cofree.options import CoFreeOptions
from .grappa.options import GrappaOptions
from .retexo.options import FederatedRETEXOOptions, RETEXOOptions

WHOLE_GRAPH = ("full", "retexo", "retexo-federated", "cofree", "bns", "adaqp")  # methods that sample nothing
OF_SAMPLING = ("sampler", "sampler_options", "frontier", "batch_size", "bulk_size", "memory_budget")  # options that these do not read
_LINKS = ("sync", *AVERAGING)  # methods that can predict links


class MethodOptions(Options):
    """The option that names the method."""

    title = "Common"
    method: str = Field("sync", description=f"Method of training: {', '.join(METHODS)}. sync averages gradients at every step.")

    @field_validator("method")
    @classmethod
    def _exists(cls, method: str) -> str:
        if method not in METHODS:
            raise ValueError(unknown("method", method, METHODS))
        return method


class TrainConfig(
    MethodOptions, TrainOptions,
    AdaQPOptions, BNSOptions, CoFreeOptions, GrappaOptions, RETEXOOptions, FederatedRETEXOOptions, AveragingOptions, SuperTMAOptions,
    LLCGOptions,
):  # fmt: skip
    """One training run. `TrainConfig.of` raises `UsageError` where the class itself raises pydantic's error."""

    @model_validator(mode="after")
    def _fits_method(self) -> Self:
        """Raise `ValueError` for options that do not fit the method."""
        self.check_groups(self.method)
        if self.evaluation == "sampled" and self.method.startswith("retexo"):
            raise ValueError(f"{self.method} scores the rows of its layers, which it has; got evaluate sampled: use exact or none")
        if self.task == "links" and self.method not in _LINKS:
            raise ValueError(f"link prediction is possible with the methods {', '.join(_LINKS)}; got {self.method!r}")
        for name in ("graph", "topology", "features") if self.task == "links" and self.method == "sync" else ():
            if getattr(self, name) == "partitioned":
                raise ValueError(f"link prediction reads the edges on every rank; got {name} partitioned: use {name} replicated")
        return self
