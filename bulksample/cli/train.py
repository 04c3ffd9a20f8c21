"""`bulksample train`: train a model on one rank or, under mpirun or srun, on many."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..errors import EXIT_PEER_LOST
from ..methods.config import TrainConfig
from .configured import Requested, config_beside, configured, write_config
from .output import JsonOption, emit, tell_launch


@configured(TrainConfig)
def train(
    requested: Requested,
    directory: Annotated[Path, typer.Argument(help="A graph in the store format, with features and labels.")],
    json_file: JsonOption = None,
) -> None:
    """Train, evaluate exactly, and report the test score at the best validation score."""
    from ..distributed.comm.world import world

    config, quiet = _config(requested)
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
            write_config(config, requested, config.method, config_beside(json_file), kept and kept / "config.yaml")
            context = trainer.context
            if comm.size > 1 and not quiet:
                tell_launch(comm.size, str(context.threads), context.compute.transport_note(context.tensor_comm))
        with tracking:
            report = tracking.finish(trainer.run())
        if comm.rank == 0:
            emit(report, json_file, f"train {directory}", table=not quiet)
    if report["stopped"] and not report.get("ended"):
        then = "go on with --resume auto" if kept else "nothing was kept; use --checkpoint DIR to keep a run"
        if comm.rank == 0:
            print(f"bulksample: stopped by a signal after step {report['steps']}; {then}", file=sys.stderr)
        raise typer.Exit(EXIT_PEER_LOST)
    if report["failed_saves"]:
        raise typer.Exit(1)


def _config(requested: Requested) -> tuple[TrainConfig, bool]:
    """Return the configuration, and True for no output. A trainer that joins a run receives the configuration from that run."""
    if "join" not in requested:
        config: TrainConfig = requested.config(TrainConfig)
        return config, config.quiet
    from ..methods.averaging.remote_trainer import invited_config

    own: TrainConfig = Requested({key: given for key, given in requested.items() if key in ("timeout", "quiet")}).config(TrainConfig)
    return invited_config(requested["join"].value, own.timeout), own.quiet
