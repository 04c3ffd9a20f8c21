"""Checkpoints of an earlier run are not lost by a new run that is given their folder."""

from __future__ import annotations

from pathlib import Path

from ..config.train import TrainOptions
from ..errors import UsageError


def check_checkpoints(config: TrainOptions, overwrite: bool) -> None:
    """Raise `UsageError` if a run that resumes nothing is to write its checkpoints beside those of another, unless `overwrite`."""
    if config.checkpoint and not config.resume and not overwrite and any(Path(config.checkpoint).glob("step-*")):
        raise UsageError(
            f"{config.checkpoint} holds checkpoints of an earlier run; use --resume auto to continue it, another folder, or --overwrite"
        )
