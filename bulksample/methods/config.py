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
from ..samplers import SAMPLERS
from . import METHODS, options
from .readers import check_read

_LINKS = ("sync", *options.AVERAGING)  # methods that can predict links
_BY_LAYER = "trains one layer after another, and the projections of the types into one width belong to no layer"
_ONE_TYPE = {  # values of options that are for graphs of one type, and the reason
    "method": {
        "full": "exchanges the rows of one type between the layers",
        "bns": "samples the rows of one type that full-graph training exchanges between the layers",
        "adaqp": "rounds the rows of one type that full-graph training exchanges between the layers",
        "retexo": _BY_LAYER, "retexo-federated": _BY_LAYER,
    },
    "sampler": {
        "shadow": "takes the edges among the vertices of one type for every layer",
        "saint": "estimates the chance of each vertex and edge of one type, and corrects the loss by it",
    },
    "cache_by": {"inclusion": "multiplies with one adjacency"},
}  # fmt: skip
_CHOICES = {"method": tuple(METHODS), "sampler": tuple(SAMPLERS), "cache_by": ("degree", "frequency", "inclusion")}


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
        if self.tolerate_failures and (self.lr_schedule, self.warmup) != ("constant", "0"):
            name, found = ("lr_schedule", self.lr_schedule) if self.lr_schedule != "constant" else ("warmup", self.warmup)
            raise ValueError(f"{name} counts steps of a run, which trainers that may fail do not know; got {name} {found}: leave it out")
        if (self.tolerate_failures or self.join) and self.sampling_weights is not None:
            found = f"sampling_weights {self.sampling_weights}"
            raise ValueError(
                f"sampling_weights is a file of the ranks of a job, not of trainers that may fail or join; got {found}: leave it out"
            )
        if self.seed_locality and self.method != "sync":
            raise ValueError(f"seed_locality groups the seeds that all ranks share, by method 'sync'; got {self.method!r}: leave it out")
        if self.task == "links" and self.method not in _LINKS:
            raise ValueError(f"link prediction is possible with the methods {', '.join(_LINKS)}; got {self.method!r}")
        if self.task == "edges" and self.method != "sync":
            raise ValueError(f"labelled edges are predicted with method sync; got {self.method!r}: use sync")
        return self

    def _check_relational(self) -> None:
        """Raise `ValueError` for options that a model of heterogeneous graphs does not support, or that are for these models alone."""
        if not self.is_relational:
            for name in (*TimeOptions.model_fields, *FeaturelessOptions.model_fields, "target_relation"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name} is an option of the models {', '.join(RELATIONAL_MODELS)}; got model {self.model}")
            return
        for name, refused in _ONE_TYPE.items():
            if why := refused.get(found := getattr(self, name)):
                fits = " or ".join(one for one in _CHOICES[name] if one not in refused)
                raise ValueError(f"{name} {found} {why}; got model {self.model}, of several types: use {fits}")
        of_nodes = {"links": ("target_type", "seed_times", "label", "seeds"), "edges": ("target_type", "seed_times")}
        for name in of_nodes.get(self.task, ()):
            if value := getattr(self, name):
                raise ValueError(f"{name} is an option of the task nodes; got {value} with task {self.task}: leave it out")
        divided = "partitioned" in (self.graph, self.topology, self.features)
        if self.partition != "block" and not divided and self.method == "sync":  # the other methods divide the graph
            raise ValueError(
                f"model {self.model}: partition {self.partition} divides relations and features; use graph partitioned, or features "
                "partitioned"
            )
        if self.task != "nodes" and (self.sampler in UNION or self.sampler_options.get("weighted")):
            raise ValueError(f"ends of edges draw node by node, and without weights; got sampler {self.sampler}: use sage, labor or full")
        if self.strategy == "last" and (self.sampler != "sage" or self.sampler_options.get("replace")):
            raise ValueError("strategy last takes the newest neighbors; use it with sampler sage, without replace")
