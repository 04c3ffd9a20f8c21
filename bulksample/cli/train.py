"""`bulksample train`: train a model on one rank or, under mpirun or srun, on many."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..data.store import manifest
from ..distributed.comm.launchers import launched
from ..errors import EXIT_PEER_LOST, UsageError
from ..log import start_logging, warn
from ..methods.config import TrainConfig
from ..methods.readers import unread_warning
from .configured import Requested, config_beside, config_file, configured, write_config
from .output import JsonOption, LogLevel, OverwriteOption, emit, tell_launch
from .process import gc_paused

_OF_TRAINER = ("join", "token_file", "timeout", "quiet")  # options of a trainer that joins a run
_ROWS = ("train_loss", "best_epoch", "method", "model", "ranks", "epochs", "seconds_per_epoch", "bytes_sent")  # after the scores


@configured(TrainConfig)
def train(
    requested: Requested,
    directory: Annotated[Path, typer.Argument(help="A graph in the store format, with features and labels.")],
    overwrite: OverwriteOption = False,
    json_file: JsonOption = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="All entries of the report in the table, instead of ten.")] = False,
    log_level: Annotated[LogLevel, typer.Option(help="Lines on standard error; info: one an epoch, debug: one a step.")] = LogLevel.info,
) -> None:
    """Train, evaluate, and report the test score at the best validation score."""
    from ..distributed.comm.world import world

    config, quiet = _config(requested)
    if quiet and verbose:
        raise UsageError("--quiet and --verbose contradict each other; use one of them")
    if launched().ranks == 1:  # before torch is imported; several ranks find it together
        config.check_graph(str(directory), manifest(directory).plain)
    start_logging(log_level)
    if not quiet:
        # options from a file may serve several runs
        warning = unread_warning(config, {name: given.origin for name, given in requested.items() if given.origin.startswith("--")})
        if warning and not launched().rank:
            warn(warning)
    from ..training.callbacks import Callback, EpochLog, JsonLines, lines_of, progress_shown
    from ..training.overwrite import CONFIG, among_checkpoints, owned
    from ..training.trackers import check_trackers

    check_trackers(config.track)
    lines = lines_of(config, json_file)
    shown: list[Callback] = [] if quiet else [EpochLog() if log_level == LogLevel.debug else progress_shown()]
    configs = [config_file(file, requested) for file in (config_beside(json_file), among_checkpoints(config, CONFIG))]

    with world(config.timeout) as comm, owned(config, overwrite, comm, lines, json_file, *configs) as outputs:
        with gc_paused():
            from ..methods.run import train_tracked
            from ..training.loop import Trainer
            from ..training.step_meter import step_line

        def begun(trainer: Trainer) -> None:
            write_config(config, requested, config.method, *configs, writer=outputs.write)
            context = trainer.context
            if comm.size > 1 and not quiet:
                tell_launch(comm.size, str(context.threads), context.compute.transport_note(context.tensor_comm))

        report = train_tracked(config, directory, comm, [*([JsonLines(lines, outputs)] if lines else []), *shown], begun)
        if comm.rank == 0:
            rows = _ten_rows(report)
            report = {name: report[name] for name in (*rows, *report)}  # the rows of the table first
            emit(report, json_file, f"train {directory}", not quiet, () if verbose else rows, outputs.write)
            if report["step"] and not quiet and str(json_file) != "-":
                print(step_line(report["step"]))
    if report["stopped"] and not report.get("ended"):
        then = "go on with --resume auto" if config.checkpoint else "nothing was kept; use --checkpoint DIR to keep a run"
        if comm.rank == 0:
            print(f"bulksample: stopped by a signal after step {report['steps']}; {then}", file=sys.stderr)
        raise typer.Exit(EXIT_PEER_LOST)
    if report["failed_saves"]:
        raise typer.Exit(1)


def _ten_rows(report: dict[str, Any]) -> list[str]:
    """Return the names of the entries that matter most: measured scores first; bytes between machines if there are several."""
    scores = [f"{split}_{report['metric']}" for split in ("test", "val")]
    between = ["bytes_between_machines"] if len(report["ranks_of_machines"]) > 1 else []
    return [name for name in scores if report.get(name) is not None] + list(_ROWS) + between


def _config(requested: Requested) -> tuple[TrainConfig, bool]:
    """Return the configuration, and True for no output. A trainer that joins a run receives the configuration from that run."""
    if "join" not in requested:
        config: TrainConfig = requested.config(TrainConfig)
        return config, config.quiet
    if others := [given.origin for name, given in requested.items() if name not in _OF_TRAINER and given.origin.startswith("--")]:
        raise UsageError(f"--join takes the options of the run that it joins; got {', '.join(others)}: leave them out")
    from ..methods.averaging.remote_trainer import invited_config

    trainer: TrainConfig = Requested({key: given for key, given in requested.items() if key in ("timeout", "quiet")}).config(TrainConfig)
    token_file = requested["token_file"].value if "token_file" in requested else None
    return invited_config(requested["join"].value, trainer.timeout, token_file), trainer.quiet
