"""Who is told how a run goes: JSON lines in a file, a progress bar on a terminal. Trackers can join by the same protocol."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Protocol


class Observer(Protocol):
    """Told on rank 0 what happens; must not raise and must not block."""

    def begin(self, epoch: int, epochs: int, steps: int) -> None:
        """Training starts or goes on at an epoch, of so many, of so many steps each."""

    def step(self, epoch: int, step: int, loss: float) -> None:
        """A step was made; `loss` is the mean over its seeds on all ranks."""

    def epoch(self, line: dict[str, Any]) -> None:
        """An epoch ended."""

    def end(self) -> None:
        """No more follows."""


class JsonLines:
    """One JSON object per epoch. A resumed run keeps the lines of the epochs that it does not repeat.

    Parameters
    ----------
    path : path
        Parents are made where they are missing.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    def begin(self, epoch: int, epochs: int, steps: int) -> None:
        kept = []
        if epoch and self._path.exists():
            kept = [line for line in self._path.read_text().splitlines() if _epoch_of(line) < epoch]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_name(self._path.name + ".tmp")
        new.write_text("".join(line + "\n" for line in kept))
        os.replace(new, self._path)

    def step(self, epoch: int, step: int, loss: float) -> None:
        pass

    def epoch(self, line: dict[str, Any]) -> None:
        with open(self._path, "a") as stream:
            stream.write(json.dumps(line) + "\n")

    def end(self) -> None:
        pass


def lines_beside(json_file: Path | None) -> Path | None:
    """Where the lines of a run go whose object goes to a file: NAME.jsonl beside NAME.json."""
    return None if json_file is None or str(json_file) == "-" else json_file.with_suffix(".jsonl")


def _epoch_of(line: str) -> float:
    """The epoch of a line; infinity for a line cut short by a crash."""
    try:
        return json.loads(line)["epoch"]
    except (ValueError, KeyError, TypeError):
        return float("inf")


class ProgressBar:
    """Epochs, loss and scores on standard error; shows nothing where that is no terminal."""

    def begin(self, epoch: int, epochs: int, steps: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
            console=Console(file=sys.stderr),
            disable=not sys.stderr.isatty(),
        )
        self._progress.start()
        self._scores = ""
        self._task = self._progress.add_task("", total=(epochs - epoch) * steps, epoch=epoch)

    def step(self, epoch: int, step: int, loss: float) -> None:
        self._progress.update(self._task, advance=1, epoch=epoch, description=f"loss {loss:.4f} {self._scores}")

    def epoch(self, line: dict[str, Any]) -> None:
        self._scores = " ".join(f"{key} {value:.4f}" for key, value in line.items() if key.startswith("val_"))

    def end(self) -> None:
        self._progress.stop()
