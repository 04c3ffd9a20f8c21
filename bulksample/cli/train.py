"""`bulksample train`: train a model on one rank or, under mpirun or srun, on many."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..errors import EXIT_PEER_LOST
from ..methods.config import TrainConfig
from .configured import Asked, beside, configured, keep
from .output import JsonOption, emit, tell_launch


@configured(TrainConfig)
def train(
    asked: Asked,
    directory: Annotated[Path, typer.Argument(help="A graph in the store format, with features and labels.")],
    json_file: JsonOption = None,
) -> None:
    """Train, evaluate exactly, and report the test score at the best validation score."""
    from ..distributed.comm.world import world

    config, quiet = _config(asked)
    from ..report.trackers import check_trackers, make_tracking
    from ..training.observers import JsonLines, Observer, ProgressBar, lines_beside

    check_trackers(config.track)
    from ..methods.run import make_trainer

    kept = Path(config.checkpoint) if config.checkpoint else None
    lines = config.metrics or (kept / "metrics.jsonl" if kept else lines_beside(json_file))
    observers: list[Observer] = [JsonLines(lines)] if lines else []
    with world(config.timeout) as comm:
        tracking = make_tracking(config.track if comm.rank == 0 else (), config.model_dump(mode="json"))
        trainer = make_trainer(config, directory, comm, [*observers, tracking, *([] if quiet else [ProgressBar()])])
        if comm.rank == 0:
            keep(config, asked, config.method, beside(json_file), kept and kept / "config.yaml")
            context = trainer.context
            if comm.size > 1 and not quiet:
                tell_launch(comm.size, str(context.threads), context.compute.transport_note(context.tensor_comm))
        with tracking:
            report = tracking.finish(trainer.run())
        if comm.rank == 0:
            emit(report, json_file, f"train {directory}", table=not quiet)
    if report["stopped"] and not report.get("ended"):
        then = "go on with --resume auto" if kept else "no --checkpoint was given, so nothing was kept"
        if comm.rank == 0:
            print(f"bulksample: stopped by a signal after step {report['steps']}; {then}", file=sys.stderr)
        raise typer.Exit(EXIT_PEER_LOST)
    if report["failed_saves"]:
        raise typer.Exit(1)


def _config(asked: Asked) -> tuple[TrainConfig, bool]:
    """The configuration, and whether to be quiet; one who joins a run is told its configuration by that run."""
    if "join" not in asked:
        config: TrainConfig = asked.config(TrainConfig)
        return config, config.quiet
    from ..methods.averaging.remote_trainer import invited_config

    own: TrainConfig = Asked({key: given for key, given in asked.items() if key in ("timeout", "quiet")}).config(TrainConfig)
    return invited_config(asked["join"].value, own.timeout), own.quiet
