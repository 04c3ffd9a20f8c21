"""Send the numbers of a run to TensorBoard, Weights & Biases or MLflow behind one small protocol; each is imported only if requested.

A tracker that fails is reported once and then dropped; the run goes on. JSON lines (`training.callbacks`) need no tracker.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from ..errors import UsageError
from .callbacks import Callback

_MOST_PARAMETERS = 100  # in one call of MLflow
_LONGEST = 500  # characters of a parameter's value in MLflow


class Tracker(Protocol):
    """Receives the numbers of a run on rank 0. Exceptions are caught."""

    def start(self, config: dict[str, Any]) -> None:
        """A run with this configuration begins, or resumes."""

    def log(self, step: int, values: dict[str, float]) -> None:
        """An epoch has ended; its numbers have names such as ``loss`` and ``phases/sample``."""

    def finish(self, summary: dict[str, Any]) -> None:
        """The run has ended with these numbers; none if it failed."""


class Tracking(Callback):
    """A callback of the training loop that forwards to named trackers. Used as a context, it also tells them of a failed run."""

    def __init__(self, trackers: Sequence[tuple[str, Tracker]], config: dict[str, Any]) -> None:
        self._trackers, self._config = list(trackers), config

    def begin(self, epoch: int, epochs: int, steps: int) -> None:
        self._call(lambda tracker: tracker.start(self._config))

    def epoch(self, line: dict[str, Any]) -> None:
        self._call(lambda tracker: tracker.log(line["epoch"], flat(line)))

    def finish(self, report: dict[str, Any]) -> dict[str, Any]:
        """Send the report of a successful run to all trackers, drop them, and return the report."""
        self._call(lambda tracker: tracker.finish(flat(report)))
        self._trackers = []
        return report

    def __enter__(self) -> Tracking:
        return self

    def __exit__(self, *error: object) -> None:
        """Tell the trackers that are left that the run failed."""
        self._call(lambda tracker: tracker.finish({}))

    def _call(self, send: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._trackers):
            try:
                send(tracker)
            except Exception as error:  # from a foreign package, a full disk or a network: a run goes on without it
                print(f"bulksample: {name} failed and receives nothing more: {_reason(error)}", file=sys.stderr)
                self._trackers.remove((name, tracker))


def flat(values: dict[str, Any]) -> dict[str, float]:
    """Return the numbers in a nested object under names joined by ``/``, without its configuration, environment and data."""
    numbers: dict[str, float] = {}
    for key, value in values.items():
        if isinstance(value, dict) and key not in ("config", "environment", "data"):
            numbers |= {f"{key}/{name}": number for name, number in flat(value).items()}
        elif isinstance(value, int | float) and not isinstance(value, bool) and key != "epoch":
            numbers[key] = float(value)
    return numbers


class TensorBoard:
    """Scalars in event files of a folder. A resumed run hides the scalars of an earlier one from its first epoch on."""

    def __init__(self, folder: str) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._make: Any = SummaryWriter  # torch does not annotate it
        self._folder = folder
        self._writer: Any = None
        self._config: dict[str, Any] = {}

    def start(self, config: dict[str, Any]) -> None:
        """Keep the configuration. The first epoch opens the files, as its number says what they hide."""
        self._config = config

    def log(self, step: int, values: dict[str, float]) -> None:
        if self._writer is None:
            self._writer = self._make(self._folder, purge_step=step)
            self._writer.add_text("config", "\n".join(f"    {key}: {value}" for key, value in self._config.items()), step)
        self._add(step, values)

    def finish(self, summary: dict[str, Any]) -> None:
        """Write the numbers of the report under ``summary/``."""
        if self._writer is not None:
            self._add(0, {f"summary/{name}": value for name, value in summary.items()})
            self._writer.close()

    def _add(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()


class WandB:
    """A run in a project of Weights & Biases; WANDB_MODE=offline keeps it on this machine."""

    def __init__(self, project: str) -> None:
        import wandb

        self._wandb: Any = wandb
        self._project = project

    def start(self, config: dict[str, Any]) -> None:
        self._run = self._wandb.init(project=self._project, config=config)

    def log(self, step: int, values: dict[str, float]) -> None:
        self._run.log(values, step=step)

    def finish(self, summary: dict[str, Any]) -> None:
        self._run.summary.update(summary)
        self._run.finish(0 if summary else 1)


class MLflow:
    """A run of the experiment "bulksample" at a tracking URI: a server, or a data base such as sqlite:///runs.db."""

    def __init__(self, uri: str) -> None:
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient(uri)

    def start(self, config: dict[str, Any]) -> None:
        from mlflow.entities import Param

        known = self._client.get_experiment_by_name("bulksample")
        experiment = known.experiment_id if known else self._client.create_experiment("bulksample")
        self._run = self._client.create_run(experiment).info.run_id
        parameters = [Param(key, str(value)[:_LONGEST]) for key, value in config.items()]
        for first in range(0, len(parameters), _MOST_PARAMETERS):
            self._client.log_batch(self._run, params=parameters[first : first + _MOST_PARAMETERS])

    def log(self, step: int, values: dict[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(1e3 * time.time())
        self._client.log_batch(self._run, metrics=[Metric(_plain(name), value, now, step) for name, value in values.items()])

    def finish(self, summary: dict[str, Any]) -> None:
        for name, value in summary.items():
            self._client.set_tag(self._run, f"summary.{_plain(name)}", value)
        self._client.set_terminated(self._run, "FINISHED" if summary else "FAILED")


class _TrackerKind(NamedTuple):
    make: Callable[[str], Tracker]
    package: str
    example: str


TRACKERS = {
    "tensorboard": _TrackerKind(TensorBoard, "tensorboard", "tensorboard:DIR"),
    "wandb": _TrackerKind(WandB, "wandb", "wandb:PROJECT"),
    "mlflow": _TrackerKind(MLflow, "mlflow", "mlflow:URI"),
}


def check_trackers(specs: Sequence[str]) -> None:
    """Raise `UsageError` for a tracker that is unknown, has no target, or whose package is missing. Nothing is imported."""
    for spec in specs:
        name, _, target = spec.partition(":")
        if name not in TRACKERS or not target:
            raise UsageError(f"a tracker must be NAME:TARGET; got {spec!r}; use {', '.join(kind.example for kind in TRACKERS.values())}")
        if not _installed(TRACKERS[name].package):
            raise UsageError(f"{spec}: the package {TRACKERS[name].package} is missing; use pip install 'bulksample[{name}]'")


def make_tracking(specs: Sequence[str], config: dict[str, Any]) -> Tracking:
    """Make the trackers of `--track` on the rank that calls them. A tracker that cannot be made is reported and left out."""
    trackers: list[tuple[str, Tracker]] = []
    for spec in specs:
        name, _, target = spec.partition(":")
        try:
            trackers.append((spec, TRACKERS[name].make(target)))
        except Exception as error:  # from a package that is installed but broken
            print(f"bulksample: {spec} cannot be started and receives nothing: {_reason(error)}", file=sys.stderr)
    return Tracking(trackers, config)


def _reason(error: Exception) -> str:
    """Return an error in one line; some packages raise long ones."""
    return textwrap.shorten(f"{type(error).__name__}: {error}", 300, placeholder=" …")


def _installed(package: str) -> bool:
    with suppress(ValueError):  # find_spec raises it for an imported module without a spec
        return importlib.util.find_spec(package) is not None
    return package in sys.modules and sys.modules[package] is not None


def _plain(name: str) -> str:
    """Replace the characters that MLflow does not accept in a name."""
    return re.sub(r"[^\w\-. /]", "_", name)
