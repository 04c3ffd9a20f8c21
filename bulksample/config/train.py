"""Options of `train` that do not depend on its method, and of `sample`; `methods.config` adds the method and its own options.

No torch is imported here, so a bad option is refused before anything heavy is loaded.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Self

from pydantic import Field, model_validator

from ..errors import UsageError
from . import DEFAULT_FANOUTS, groups
from .epochs import EpochLengthOptions, check_locality
from .metrics import check_suits, is_ranking
from .options import Options, fanout_list

_TOO_MANY = 65  # layers, which the field itself refuses


class TrainOptions(
    groups.SeedOptions, groups.ModelOptions, groups.SamplingOptions, groups.LocalityOptions, EpochLengthOptions, groups.DataOptions,
    groups.TimeOptions, groups.FeaturelessOptions, groups.OptimizerOptions, groups.EvaluationOptions, groups.DistributionOptions,
    groups.VirtualRankOptions, groups.TrafficOptions, groups.RunningOptions, groups.ThreadOptions, groups.MemoryOptions,
    groups.ComputingOptions, groups.OutputOptions,
):  # fmt: skip
    """The options of a run that every method shares."""

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, values: Any) -> Any:
        """Derive the layers from the fanouts, or the fanouts from the layers."""
        if not isinstance(values, dict):
            return values
        values = {key: value for key, value in values.items() if value is not None}
        if "fanouts" in values and "layers" not in values:
            with suppress(UsageError, TypeError):  # the field itself raises it again
                values["layers"] = len(fanout_list(values["fanouts"]))
        if "layers" in values and "fanouts" not in values and str(values["layers"]).isdigit():
            layers = min(int(values["layers"]), _TOO_MANY)
            values["fanouts"] = (DEFAULT_FANOUTS + DEFAULT_FANOUTS[-1:] * layers)[:layers]
        return values

    @model_validator(mode="after")
    def _fits(self) -> Self:
        """Raise `ValueError` for options that do not fit each other."""
        if self.sampler != "shadow" and self.layers != len(self.fanouts):
            raise ValueError(f"{self.layers} layers need as many fanouts; got {','.join(map(str, self.fanouts))}")
        if self.eval_fanouts and len(self.eval_fanouts) != self.layers:
            raise ValueError(f"{self.layers} layers need as many eval_fanouts; got {','.join(map(str, self.eval_fanouts))}")
        if self.task != "nodes" and self.evaluation == "sampled" and not self.is_relational:
            raise ValueError(f"task {self.task} scores edges by exact embeddings; got evaluate sampled: use exact or none")
        if self.task == "links" and "train" in self.eval_splits:
            raise ValueError("link prediction scores the held-out edges of val and test; got eval_splits train")
        if self.resume and self.resume == "auto" and not self.checkpoint:
            raise ValueError("resume auto looks for checkpoints in the directory of checkpoint; give checkpoint='DIR'")
        if self.checkpoint_every and not self.checkpoint:
            raise ValueError("checkpoint_every needs a directory; give checkpoint='DIR'")
        if self.batch_norm and self.layer_norm:
            raise ValueError("batch_norm and layer_norm take the same place in a layer; use one of them")
        if self.task == "links" and self.target:
            raise ValueError(f"target is an option of the task nodes; got {self.target!r} with task links: leave it out")
        if self.metric and (self.target or self.task == "links"):
            check_suits(self.metric, self.target or "links")
        if self.metric and self.task != "links" and is_ranking(self.metric):
            raise ValueError(f"the metric {self.metric!r} does not suit the task {self.task!r}; use accuracy, f1 or rocauc")
        check_locality(self.seed_locality, self.steps_per_epoch)
        if self.balance_classes and self.sampling_weights is not None:
            raise ValueError(f"balance_classes weighs seeds by their class; got sampling_weights {self.sampling_weights}: leave one out")
        for name in ("balance_classes", "sampling_weights"):
            if getattr(self, name) not in (False, None) and self.seed_locality:
                raise ValueError(f"{name} draws seeds among all; got seed_locality {self.seed_locality}: leave one out")
        if self.task != "nodes" and self.seed_locality:
            raise ValueError(f"task {self.task} draws edges, not seeds; got seed_locality {self.seed_locality}: leave it out")
        if self.decoder != "dot" and self.task != "links":
            raise ValueError(f"decoder is an option of link prediction; got task {self.task!r}: use task links")
        if self.exclude_targets != "none" and self.task == "nodes":
            raise ValueError("exclude_targets is an option of edges as examples; got task 'nodes': use task links or edges")
        self._check_edges()
        return self

    def _check_edges(self) -> None:
        """Raise `ValueError` unless labelled edges are given for the task edges, and for it alone."""
        if self.task == "edges" and self.edge_labels is None:
            raise ValueError("task edges needs edge_labels, a table of labelled edges; give a file .npz, .csv or .parquet")
        for name in ("edge_labels", "target_relation"):
            if self.task != "edges" and (value := getattr(self, name)) is not None:
                raise ValueError(f"{name} is an option of the task edges; got {value} with task {self.task}: leave it out")


class EpochOptions(Options):
    """The mini-batches of an epoch, and their digest."""

    group, title = "epoch", "Epoch"
    epoch: int = Field(0, ge=0, description="Number of the epoch; the draws depend on it.")
    minibatches: int | None = Field(None, ge=1, description="Number of mini-batches, from the first; by default all of the epoch.")
    digest: bool = Field(True, description="Compute the SHA-256 of the mini-batches (not timed).")


class SampleConfig(
    groups.SeedOptions, groups.SamplingOptions, groups.LocalityOptions, EpochLengthOptions, groups.TimeOptions, EpochOptions,
    groups.DistributionOptions, groups.RunningOptions,
):  # fmt: skip
    """One epoch of sampling: the options of training that affect sampling, and those of the epoch."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        """Raise `ValueError` for an option that nothing in the epoch reads."""
        check_locality(self.seed_locality, self.steps_per_epoch)
        if self.memory_budget is not None and self.bulk_size != "auto":
            raise ValueError(
                f"memory_budget is for bulk_size auto; got memory_budget {self.memory_budget} with bulk_size {self.bulk_size}: "
                "leave one out"
            )
        if self.feature_replication is not None and self.features is None:
            raise ValueError(
                f"feature_replication is for features that are fetched; got c = {self.feature_replication} without features: use features "
                "partitioned"
            )
        return self
