"""Callbacks of a run: JSON lines in a file, a progress bar on a terminal, log lines elsewhere. Trackers and users add their own."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any, Protocol

from ..config.train import TrainOptions
from ..data.atomic import is_device, write_file
from ..data.result_places import companion
from ..log import ensure_logging
from .overwrite import LINES, Outputs, among_checkpoints


class Callback(Protocol):
    """The events of a run. A callback overrides those that it needs; the trainer calls them on rank 0, in this order.

    An event that raises ends the run on every rank. Training waits for it, so it must not block.
    """

    def begin(self, epoch: int, epochs: int, steps: int) -> None:
        """Training starts or resumes at `epoch` of `epochs`, each of so many steps."""
        return

    def step(self, epoch: int, step: int, loss: float) -> None:
        """A step is complete; `loss` is the mean over its seeds on all ranks. On a GPU the call comes up to 15 steps late."""
        return

    def epoch(self, line: dict[str, Any]) -> None:
        """An epoch is complete; `line` holds its number, loss, scores, seconds and bytes. Its checkpoint is written afterwards."""
        return

    def end(self) -> None:
        """The run has ended, complete or not."""
        return


class JsonLines(Callback):
    """A callback that writes one JSON object per epoch. A resumed run keeps the lines of the epochs that it does not repeat.

    Missing folders above the file are made. The run notes in `outputs` how the file begins.
    """

    def __init__(self, path: str | os.PathLike[str], outputs: Outputs | None = None) -> None:
        self._path, self._outputs, self._empty = Path(path), outputs or Outputs(None), True

    def begin(self, epoch: int, epochs: int, steps: int) -> None:
        kept = []
        if epoch and self._path.is_file():  # not a pipe
            kept = [line for line in self._path.read_text(encoding="utf-8").splitlines() if _epoch_of(line) < epoch]
        self._empty = not kept
        self._outputs.note(self._path, "".join(line + "\n" for line in kept[:1]))
        write_file(self._path, "".join(line + "\n" for line in kept))

    def epoch(self, line: dict[str, Any]) -> None:
        text = json.dumps(line) + "\n"
        if self._empty:
            self._outputs.note(self._path, text)
            self._empty = False
        with open(self._path, "a", encoding="utf-8") as stream:
            stream.write(text)


def lines_of(config: TrainOptions, json_file: Path | None = None) -> Path | None:
    """Return the file for the lines of a run: `metrics`, `LINES` among its checkpoints, or the file beside the report, if any."""
    return Path(config.metrics) if config.metrics else among_checkpoints(config, LINES) or lines_beside(json_file)


def lines_beside(json_file: Path | None) -> Path | None:
    """Return the path NAME.jsonl beside the report NAME.json; None if the report goes to standard output, a device or nowhere."""
    return None if json_file is None or str(json_file) == "-" or is_device(json_file) else companion(json_file, ".jsonl")


def _epoch_of(line: str) -> float:
    """Return the epoch of a line; infinity if a crash cut the line short."""
    try:
        return float(json.loads(line)["epoch"])
    except (ValueError, KeyError, TypeError):
        return float("inf")


def _scores(line: dict[str, Any]) -> list[str]:
    """Return the name and the value of each validation score of an epoch."""
    return [f"{key} {'undefined' if value is None else f'{value:.4f}'}" for key, value in line.items() if key.startswith("val_")]


class EpochLog(Callback):
    """A callback that logs a line an epoch (INFO) and a line a step (DEBUG) to the logger ``bulksample``."""

    def __init__(self) -> None:
        self._log = logging.getLogger("bulksample")

    def begin(self, epoch: int, epochs: int, steps: int) -> None:
        self._epochs = epochs

    def step(self, epoch: int, step: int, loss: float) -> None:
        self._log.debug("epoch %d, step %d: loss %.4f", epoch, step, loss)

    def epoch(self, line: dict[str, Any]) -> None:
        scores = "".join(f"{score}, " for score in _scores(line))
        number, loss, seconds = line["epoch"], line["loss"], line["seconds"]
        self._log.info("epoch %d (%d of %d): loss %.4f, %s%.3g s", number, number + 1, self._epochs, loss, scores, seconds)


def progress_shown() -> Callback:
    """Return the callback that shows a run on standard error: a bar on a terminal, log lines elsewhere."""
    ensure_logging()
    return ProgressBar() if sys.stderr.isatty() else EpochLog()


class ProgressBar(Callback):
    """A callback that shows epochs, loss and scores on standard error, if that is a terminal."""

    def begin(self, epoch: int, epochs: int, steps: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("epoch {task.fields[epoch]}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
        self._progress = Progress(*columns, TimeRemainingColumn(), console=Console(file=sys.stderr), disable=not sys.stderr.isatty())
        self._progress.start()
        self._scores = ""
        self._task = self._progress.add_task("", total=(epochs - epoch) * steps, epoch=epoch)

    def step(self, epoch: int, step: int, loss: float) -> None:
        self._progress.update(self._task, advance=1, epoch=epoch, description=f"loss {loss:.4f} {self._scores}")

    def epoch(self, line: dict[str, Any]) -> None:
        self._scores = " ".join(_scores(line))

    def end(self) -> None:
        self._progress.stop()
