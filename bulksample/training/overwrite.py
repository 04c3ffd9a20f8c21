"""Refuse to overwrite another run: a run owns the places of its results, and what lies there stays unless it continues that run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ..config.train import TrainOptions
from ..data.result_places import check_ending, check_outputs, holding
from ..distributed.comm.agree import checked_on_rank_0
from ..distributed.comm.base import Comm
from ..errors import UsageError
from . import checkpoint
from .callbacks import of_first_epoch
from .outputs import CONFIG, LINES, Outputs, among_checkpoints


@contextmanager
def owned(
    config: TrainOptions, overwrite: bool, comm: Comm, lines: Path | None, json_file: Path | None = None, *configs: Path | None
) -> Iterator[Outputs]:
    """Hold the checkpoints and the files of a run while the block runs, on rank 0; collective when it begins.

    The block notes its files in the `Outputs` that it gets, on rank 0. A run that goes on replaces the files that it has noted.

    Parameters
    ----------
    config : TrainOptions
    overwrite : bool
        Replace what another run has left.
    comm : Comm
    lines : path, optional
        The JSON lines of the epochs.
    json_file : path, optional
        The report; ``-`` stands for standard output.
    configs : paths, optional
        Copies of the configuration.

    Raises
    ------
    UsageError
        On every rank, if another run holds one of the places, if what lies there is not of the run that this one continues, unless
        `overwrite`, or if it cannot be written.
    DataError
        On every rank, if the checkpoints cannot be listed, or the record of the outputs cannot be read.
    """
    folder = Path(config.checkpoint) if config.checkpoint else None
    outputs, results = Outputs(folder), (json_file, *configs, lines)
    beside = [among_checkpoints(config, name) for name in (CONFIG, LINES)]

    def check() -> None:
        nonlocal outputs
        check_ending("metrics", lines, ".jsonl", ".ndjson")
        check_ending("checkpoint", folder)
        check_checkpoints(config, overwrite)
        goes_on = _goes_on_in_place(config)
        check_outputs(True, *results)  # together, since two results need two files
        begun = not goes_on and _has_begun(config)
        outputs = Outputs(folder, goes_on or begun)

        def is_own(file: Path) -> bool:
            if not (goes_on or begun) or (outputs.recorded and not outputs.hold(file) and file not in beside):
                return False
            # a run that was killed before its first checkpoint has no report, and at most the line of its first epoch
            return goes_on or file in configs or (file == lines and of_first_epoch(file))

        for file in filter(None, results):
            check_outputs(overwrite or is_own(file), file)

    def take() -> None:
        check()
        held.enter_context(holding(*results, inside=folder))
        check()  # nobody else changes it from now on
        for file in filter(None, results):
            if file.is_file() and not outputs.hold(file):  # the run may replace it, also when it goes on after it was killed
                outputs.take_over(file, file.read_bytes())

    with ExitStack() as held:
        checked_on_rank_0(comm, take)
        yield outputs


def check_checkpoints(config: TrainOptions, overwrite: bool) -> None:
    """Raise `UsageError` if a run would remove checkpoints that it does not continue, unless `overwrite`.

    Saving a checkpoint removes later ones in its folder. ``resume="auto"`` continues from the newest, so no other run is there.
    """
    if not config.checkpoint or config.resume == "auto" or overwrite:
        return
    folder = Path(config.checkpoint)
    steps = {path.resolve(): path.name for path in checkpoint.listed(folder)}
    if not steps:
        return
    if not config.resume:
        raise UsageError(
            f"{folder} holds checkpoints of an earlier run; use resume='auto' to continue it, another folder, or overwrite=True"
        )
    resumed = Path(config.resume).resolve()
    if resumed not in {folder.resolve(), *steps}:
        raise UsageError(
            f"{folder} holds checkpoints of a run other than {config.resume}; use another folder, or overwrite=True to replace them"
        )
    if resumed in steps and (later := max(steps.values())) > steps[resumed]:
        raise UsageError(
            f"{folder} holds {later}, after {config.resume}; use resume='auto' to continue from the newest, another folder, or "
            "overwrite=True"
        )


def _goes_on_in_place(config: TrainOptions) -> bool:
    """Return True if a run continues a checkpoint in its own folder."""
    if not (config.checkpoint and config.resume):
        return False
    folder, resumed = Path(config.checkpoint), Path(config.resume).resolve()
    return bool(checkpoint.listed(folder)) and (config.resume == "auto" or folder.resolve() in (resumed, resumed.parent))


def _has_begun(config: TrainOptions) -> bool:
    """Return True if the run to resume was killed before its first checkpoint: it has kept its configuration alone."""
    kept = among_checkpoints(config, CONFIG)
    return config.resume == "auto" and kept is not None and kept.exists()
