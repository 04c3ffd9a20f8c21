"""Checkpoints and results of an earlier run are not lost by a new run that is given their places."""

from __future__ import annotations

from pathlib import Path

from ..config.train import TrainOptions
from ..errors import UsageError


def check_checkpoints(config: TrainOptions, overwrite: bool) -> None:
    """Raise `UsageError` if a run would remove checkpoints that it does not continue, unless `overwrite`.

    Saving a checkpoint removes later ones in its folder. ``resume="auto"`` continues from the newest, so no other run is there.
    """
    if not config.checkpoint or config.resume == "auto" or overwrite:
        return
    folder = Path(config.checkpoint)
    steps = {path.resolve(): path.name for path in folder.glob("step-*")}
    if not steps:
        return
    if not config.resume:
        raise UsageError(f"{folder} holds checkpoints of an earlier run; use --resume auto to continue it, another folder, or --overwrite")
    resumed = Path(config.resume).resolve()
    if resumed not in {folder.resolve(), *steps}:
        raise UsageError(
            f"{folder} holds checkpoints of a run other than {config.resume}; use another folder, or --overwrite to replace them"
        )
    if resumed in steps and (later := max(steps.values())) > steps[resumed]:
        raise UsageError(
            f"{folder} holds {later}, after {config.resume}; use --resume auto to continue from the newest, another folder, or --overwrite"
        )


def has_begun(config: TrainOptions) -> bool:
    """Return True if the run to resume has begun: it kept its configuration or a checkpoint. Its other files are then its own."""
    if config.resume != "auto":
        return config.resume is not None and Path(config.resume).is_dir()
    folder = Path(config.checkpoint or "")
    return (folder / "config.yaml").exists() or any(folder.glob("step-*"))
