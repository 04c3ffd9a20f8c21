"""The mini-batches of an epoch: what is left out, and how many steps there are."""

from __future__ import annotations

from pydantic import Field

from .options import Options


class EpochLengthOptions(Options):
    """The mini-batches of an epoch."""

    group, title = "sampling", "Sampling"
    drop_last: bool = Field(False, description="Leave out a last mini-batch that is not full, and in training a step that lacks some.")
    steps_per_epoch: int | None = Field(
        None, ge=1, lt=2**31, description="Steps of an epoch, whose seeds go on where the last one ended; by default one pass over them.",
    )  # fmt: skip


def check_locality(groups: int | None, steps: int | None) -> None:
    """Raise `ValueError` for seeds in groups in epochs of a fixed number of steps: a pass over the groups need not end with an epoch."""
    if groups is not None and steps is not None:
        raise ValueError(
            f"steps_per_epoch goes on in the order of all seeds; got steps_per_epoch {steps} with seed_locality {groups}: leave one out"
        )
