"""Options of `bulksample sample`: one epoch of sampling."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from .groups import DistributionOptions, LocalityOptions, RunningOptions, SamplingOptions, SeedOptions, TimeOptions
from .options import Options


class EpochOptions(Options):
    """The mini-batches of an epoch, and their digest."""

    group, title = "epoch", "Epoch"
    epoch: int = Field(0, ge=0, description="Number of the epoch; the draws depend on it.")
    minibatches: int | None = Field(None, ge=1, description="Number of mini-batches, from the first; by default all of the epoch.")
    drop_last: bool = Field(False, description="Leave out a last mini-batch that is not full.")
    digest: bool = Field(True, description="Compute the SHA-256 of the mini-batches (not timed).")


class SampleConfig(SeedOptions, SamplingOptions, LocalityOptions, TimeOptions, EpochOptions, DistributionOptions, RunningOptions):
    """One epoch of sampling: the options of training that affect sampling, and those of the epoch."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        """Raise `ValueError` for an option that nothing in the epoch reads."""
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
