"""Options of `bulksample sample`: one epoch of sampling."""

from __future__ import annotations

from pydantic import Field

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
