"""The configuration of a training run: the options that every method shares, and those of every method.

A new method adds its options class to the bases of `TrainConfig`. No torch is imported here.
"""

from __future__ import annotations

from typing import Self

from pydantic import Field, field_validator, model_validator

from ..config import RELATIONAL_MODELS, UNION
from ..config.groups import FeaturelessOptions, TimeOptions
from ..config.options import Options
from ..config.train import TrainOptions
from ..errors import unknown
from . import METHODS, options
from .readers import check_read

_LINKS = ("sync", *options.AVERAGING)  # methods that can predict links
_RELATIONAL = {  # what models of heterogeneous graphs support
    "method": ("sync", *options.AVERAGING), "sampler": ("sage", "labor", "full", *UNION), "cache_by": ("degree", "frequency"),
}  # fmt: skip


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
    MethodOptions, TrainOptions, options.AdaQPOptions, options.BNSOptions, options.CoFreeOptions, options.GrappaOptions,
    options.RETEXOOptions, options.FederatedRETEXOOptions, options.AveragingOptions, options.SuperTMAOptions, options.LLCGOptions,
):  # fmt: skip
    """One training run. `TrainConfig.of` raises `UsageError` where the class itself raises pydantic's error."""

    @model_validator(mode="after")
    def _fits_method(self) -> Self:
        """Raise `ValueError` for options that do not fit the method."""
        self.check_groups(self.method)
        self._check_relational()
        check_read(self)
        if self.evaluation == "sampled" and self.method.startswith("retexo"):
            raise ValueError(f"{self.method} scores the rows of its layers, which it has; got evaluate sampled: use exact or none")
        if self.seed_locality and self.method != "sync":
            raise ValueError(f"seed_locality groups the seeds that all ranks share, by method 'sync'; got {self.method!r}: leave it out")
        if self.task == "links" and self.method not in _LINKS:
            raise ValueError(f"link prediction is possible with the methods {', '.join(_LINKS)}; got {self.method!r}")
        return self

    def _check_relational(self) -> None:
        """Raise `ValueError` for options that a model of heterogeneous graphs does not support, or that are for these models alone."""
        if not self.is_relational:
            for name, field in (TimeOptions.model_fields | FeaturelessOptions.model_fields).items():
                if getattr(self, name) != field.default:
                    raise ValueError(f"{name} is an option of the models {', '.join(RELATIONAL_MODELS)}; got model {self.model}")
            return
        for name, fits in _RELATIONAL.items():
            if (found := getattr(self, name)) not in fits:
                choices = " or ".join(str(one) for one in fits if one is not None)
                raise ValueError(f"model {self.model}: got {name} {found}; {f'use {choices}' if choices else 'leave it out'}")
        for name in ("target_type", "seed_times", "label", "seeds") if self.task == "links" else ():
            if given := getattr(self, name):
                raise ValueError(f"{name} is an option of the task nodes; got {given} with task links: leave it out")
        divided = [name for name in ("graph", "topology", "features") if getattr(self, name) == "partitioned"]
        if self.method != "sync" and "partitioned" in (self.graph, self.topology):
            raise ValueError(f"method {self.method} divides a heterogeneous graph by itself; got {divided[0]} partitioned: leave it out")
        if self.partition != "block" and not divided:
            raise ValueError(
                f"model {self.model}: partition {self.partition} divides relations and features; use graph partitioned, or features "
                "partitioned"
            )
        if self.task == "links" and (self.sampler in UNION or self.sampler_options.get("weighted")):
            raise ValueError(f"ends of links draw node by node, and without weights; got sampler {self.sampler}: use sage, labor or full")
        if self.strategy == "last" and (self.sampler != "sage" or self.sampler_options.get("replace")):
            raise ValueError("strategy last takes the newest neighbors; use it with sampler sage, without replace")
