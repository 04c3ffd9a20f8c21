"""Runs told to TensorBoard, Weights & Biases or MLflow, by one small protocol. Each is imported only where it is asked for.

A tracker that fails is warned about once and told nothing more; the run goes on. JSON lines (`results`) need no tracker.
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

_MOST_PARAMETERS = 100  # of one call of MLflow
_LONGEST = 500  # characters of a parameter's value there


class Tracker(Protocol):
    """Told on rank 0 what a run does. What it raises is caught."""

    def start(self, config: dict[str, Any]) -> None:
        """A run begins, or goes on, with this configuration."""

    def log(self, step: int, values: dict[str, float]) -> None:
        """Figures after an epoch, by names such as ``loss`` and ``phases/sample``."""

    def finish(self, summary: dict[str, Any]) -> None:
        """The run has ended, with these figures; none if it did not end well."""


class Tracking:
    """An observer of the training loop that tells trackers. As a context, it tells them also where the run fails.

    Parameters
    ----------
    trackers : sequence of (name, Tracker)
    config : dict
        The resolved configuration.
    """

    def __init__(self, trackers: Sequence[tuple[str, Tracker]], config: dict[str, Any]) -> None:
        self._trackers, self._config = list(trackers), config

    def begin(self, epoch: int, epochs: int, steps: int) -> None:
        self._tell(lambda tracker: tracker.start(self._config))

    def step(self, epoch: int, step: int, loss: float) -> None:
        pass

    def epoch(self, line: dict[str, Any]) -> None:
        self._tell(lambda tracker: tracker.log(line["epoch"], flat(line)))

    def end(self) -> None:
        pass

    def finish(self, report: dict[str, Any]) -> dict[str, Any]:
        """The run has ended well, with this report, which is handed back; nobody is told anything more."""
        self._tell(lambda tracker: tracker.finish(flat(report)))
        self._trackers = []
        return report

    def __enter__(self) -> Tracking:
        return self

    def __exit__(self, *error: object) -> None:
        """What has not been told the end of the run by now is told that it failed."""
        self._tell(lambda tracker: tracker.finish({}))

    def _tell(self, say: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._trackers):
            try:
                say(tracker)
            except Exception as error:  # of a foreign package, a full disk or a network: not worth a run
                print(f"bulksample: {name} is told nothing more: {_reason(error)}", file=sys.stderr)
                self._trackers.remove((name, tracker))


def flat(values: dict[str, Any]) -> dict[str, float]:
    """The numbers in a nested object, with names joined by /; what a configuration says is left out."""
    found: dict[str, float] = {}
    for key, value in values.items():
        if isinstance(value, dict) and key not in ("config", "environment", "data"):
            found |= {f"{key}/{name}": number for name, number in flat(value).items()}
        elif isinstance(value, int | float) and not isinstance(value, bool) and key != "epoch":
            found[key] = float(value)
    return found


class TensorBoard:
    """Scalars in event files of a folder. A run that goes on hides what an earlier one wrote from its first epoch on."""

    def __init__(self, folder: str) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._open: Callable[[], Any] = lambda: EventFileWriter(folder)
        self._writer: Any = None
        self._config: dict[str, Any] = {}

    def start(self, config: dict[str, Any]) -> None:
        """The files are made with the first epoch, which says what they hide."""
        self._config = config

    def log(self, step: int, values: dict[str, float]) -> None:
        """All figures of an epoch are one event."""
        if self._writer is None:
            self._begin(step)
        self._write(step, values)

    def finish(self, summary: dict[str, Any]) -> None:
        """Figures of the report stand under ``summary/``."""
        if self._writer is not None:
            self._write(0, {f"summary/{name}": value for name, value in summary.items()})
            self._writer.close()

    def _begin(self, step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
        from tensorboard.compat.proto.tensor_pb2 import TensorProto

        self._writer = self._open()
        said = "\n".join(f"    {key}: {value}" for key, value in self._config.items())
        text = TensorProto(dtype="DT_STRING", string_val=[said.encode()])
        plugin = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        self._writer.add_event(Event(wall_time=time.time(), step=step, session_log=SessionLog(status=SessionLog.START)))
        config = Summary(value=[Summary.Value(tag="config", metadata=plugin, tensor=text)])
        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=config))

    def _write(self, step: int, values: dict[str, float]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        said = Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()])
        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=said))
        self._writer.flush()


class WandB:
    """A run in a project of Weights & Biases; WANDB_MODE=offline keeps it on this machine."""

    def __init__(self, project: str) -> None:
        import wandb

        self._start = lambda config: wandb.init(project=project, config=config)

    def start(self, config: dict[str, Any]) -> None:
        self._run = self._start(config)

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

        found = self._client.get_experiment_by_name("bulksample")
        experiment = found.experiment_id if found else self._client.create_experiment("bulksample")
        self._run = self._client.create_run(experiment).info.run_id
        said = [Param(key, str(value)[:_LONGEST]) for key, value in config.items()]
        for first in range(0, len(said), _MOST_PARAMETERS):
            self._client.log_batch(self._run, params=said[first : first + _MOST_PARAMETERS])

    def log(self, step: int, values: dict[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(1e3 * time.time())
        self._client.log_batch(self._run, metrics=[Metric(_plain(name), value, now, step) for name, value in values.items()])

    def finish(self, summary: dict[str, Any]) -> None:
        for name, value in summary.items():
            self._client.set_tag(self._run, f"summary.{_plain(name)}", value)
        self._client.set_terminated(self._run, "FINISHED" if summary else "FAILED")


class _Kind(NamedTuple):
    make: Callable[[str], Tracker]
    package: str
    takes: str
    example: str


KINDS = {
    "tensorboard": _Kind(TensorBoard, "tensorboard", "a folder", "tensorboard:DIR"),
    "wandb": _Kind(WandB, "wandb", "a project", "wandb:PROJECT"),
    "mlflow": _Kind(MLflow, "mlflow", "a tracking URI", "mlflow:URI"),
}


def check_trackers(specs: Sequence[str]) -> None:
    """Raise `UsageError` for a tracker that does not exist, is not told where, or whose package is missing. Nothing is imported."""
    for spec in specs:
        name, _, where = spec.partition(":")
        if name not in KINDS or not where:
            raise UsageError(f"a tracker is NAME:WHERE; got {spec!r}; {', '.join(kind.example for kind in KINDS.values())} would fit")
        if not _installed(KINDS[name].package):
            raise UsageError(f"{spec}: the package {KINDS[name].package} is missing; pip install 'bulksample[{name}]' would fit")


def make_tracking(specs: Sequence[str], config: dict[str, Any]) -> Tracking:
    """The trackers of `--track`, on the rank that tells them; one that cannot be made is warned about and left out."""
    made: list[tuple[str, Tracker]] = []
    for spec in specs:
        name, _, where = spec.partition(":")
        try:
            made.append((spec, KINDS[name].make(where)))
        except Exception as error:  # of a package that is there but broken
            print(f"bulksample: {spec} is told nothing: {_reason(error)}", file=sys.stderr)
    return Tracking(made, config)


def _reason(error: Exception) -> str:
    """In one line; some packages say much."""
    return textwrap.shorten(f"{type(error).__name__}: {error}", 300, placeholder=" …")


def _installed(package: str) -> bool:
    with suppress(ValueError):  # of a module that is imported and does not say where it comes from
        return importlib.util.find_spec(package) is not None
    return package in sys.modules and sys.modules[package] is not None


def _plain(name: str) -> str:
    """A name as MLflow takes it."""
    return re.sub(r"[^\w\-. /]", "_", name)
