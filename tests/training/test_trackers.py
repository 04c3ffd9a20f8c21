"""Trackers receive the numbers of a run on rank 0 and never end it. Each format is read back by its own reader."""

import json
import struct
import sys

import pytest
from communities import community_graph
from waiting import until

from bulksample.distributed.comm.threads import on_threads
from bulksample.errors import UsageError
from bulksample.methods.run import train
from bulksample.training.callbacks import JsonLines
from bulksample.training.trackers import Tracking, check_trackers, flat, make_tracking

OPTIONS = {"fanouts": (5, 5), "hidden": 8, "batch_size": 32, "epochs": 3, "threads": 1}


class Heard:
    """A tracker that records every call, and raises in one of them."""

    def __init__(self, raises=""):
        self.raises, self.calls = raises, []

    def _hear(self, what, *said):
        self.calls.append((what, *said))
        if what == self.raises:
            raise OSError("no space left")

    def start(self, config):
        self._hear("start", config)

    def log(self, step, values):
        self._hear("log", step, values)

    def finish(self, summary):
        self._hear("finish", summary)


def run(tracking, tmp_path, ranks=1):
    """Train with trackers and JSON lines; return the report and the lines."""
    callbacks = [JsonLines(tmp_path / "m.jsonl"), tracking]
    with tracking:
        report = tracking.finish(on_threads(ranks, lambda comm: train(community_graph(), comm, callbacks, **OPTIONS))[0])
    return report, [json.loads(line) for line in (tmp_path / "m.jsonl").read_text().splitlines()]


def test_a_tracker_receives_the_configuration_every_epoch_and_the_report(tmp_path):
    heard = Heard()
    report, lines = run(Tracking([("heard", heard)], {"lr": 0.1}), tmp_path, ranks=2)
    assert heard.calls[0] == ("start", {"lr": 0.1})
    assert heard.calls[1:-1] == [("log", line["epoch"], flat(line)) for line in lines]
    assert heard.calls[-1] == ("finish", flat(report))


def test_nested_numbers_have_joined_names():
    line = {"epoch": 3, "loss": 0.5, "phases": {"sample": 1}, "resumed": True, "method": "sync", "config": {"lr": 0.1}, "none": None}
    assert flat(line) == {"loss": 0.5, "phases/sample": 1.0}


@pytest.mark.parametrize("raises", ["start", "log", "finish"])
def test_a_failing_tracker_is_reported_once_and_the_run_goes_on(tmp_path, capsys, raises):
    bad, good = Heard(raises), Heard()
    report, lines = run(Tracking([("bad", bad), ("good", good)], {}), tmp_path)
    assert report["epochs"] == len(lines) == 3
    assert capsys.readouterr().err.count("bulksample: bad failed and receives nothing more: OSError: no space left") == 1
    assert sum(call[0] == raises for call in bad.calls) == 1
    assert [call[0] for call in good.calls] == ["start", "log", "log", "log", "finish"]


def test_trackers_record_a_failed_run():
    heard = Heard()
    with pytest.raises(ZeroDivisionError, match="of the run"), Tracking([("heard", heard)], {}):
        raise ZeroDivisionError("of the run")
    assert heard.calls == [("finish", {})]


@pytest.mark.parametrize("spec", ["tensorboard", "tensorboard:", "comet:x", ":x", ""])
def test_a_malformed_tracker_is_refused(spec):
    with pytest.raises(UsageError, match=r"a tracker must be NAME:TARGET; got .*use tensorboard:DIR, wandb:PROJECT, mlflow:URI"):
        check_trackers([spec])


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_a_missing_package_is_named_with_its_pip_command(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match=rf"the package {name} is missing; use pip install 'bulksample\[{name}\]'"):
        check_trackers([f"{name}:x"])


def test_a_broken_package_does_not_end_the_run(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "wandb", None)
    make_tracking(["wandb:x"], {}).finish({})
    assert "bulksample: wandb:x cannot be started and receives nothing: " in capsys.readouterr().err


def test_tensorboard_reads_back(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is missing: pip install tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    report, lines = run(make_tracking([f"tensorboard:{tmp_path / 'board'}"], {"lr": 0.25}), tmp_path)
    read = EventAccumulator(str(tmp_path / "board"))
    read.Reload()
    for name in ("loss", "val_accuracy"):
        assert [(event.step, event.value) for event in read.Scalars(name)] == [(line["epoch"], pytest.approx(line[name])) for line in lines]
    assert read.Scalars("phases/forward")[1].value == pytest.approx(lines[1]["phases"]["forward"])
    assert read.Scalars("summary/test_accuracy")[0].value == pytest.approx(report["test_accuracy"])
    assert b"lr: 0.25" in read.Tensors("config/text_summary")[0].tensor_proto.string_val[0]


def test_tensorboard_hides_epochs_that_a_resumed_run_repeats(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is missing: pip install tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for steps, loss in (((0, 1, 2), 1.0), ((1, 2), 0.5)):
        tracking = make_tracking([f"tensorboard:{tmp_path}"], {})
        tracking.begin(0, 3, 1)
        for step in steps:
            tracking.epoch({"epoch": step, "loss": loss})
        tracking.finish({})
    read = EventAccumulator(str(tmp_path))
    read.Reload()
    assert [(event.step, event.value) for event in read.Scalars("loss")] == [(0, 1.0), (1, 0.5), (2, 0.5)]


def log_records(raw, at=7, block=2**15):
    """Yield the whole records of a file in LevelDB's log format after a head of 7 bytes: crc32, length, kind and data."""
    data = b""
    while at + 7 <= len(raw):
        if (left := block - at % block) < 7:
            at += left
            continue
        length, kind = struct.unpack_from("<HB", raw, at + 4)
        if at + 7 + length > len(raw):
            return  # it is being written
        data += raw[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield data
            data = b""


def test_wandb_keeps_an_offline_run(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="wandb is missing: pip install wandb")
    from wandb.proto import wandb_internal_pb2 as protocol

    for name, value in {"WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path), "WANDB_SILENT": "true"}.items():
        monkeypatch.setenv(name, value)
    _, lines = run(make_tracking(["wandb:bulksample-test"], {"lr": 0.25}), tmp_path)
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")

    def all_records():
        found = [protocol.Record.FromString(data) for data in log_records(file.read_bytes())]
        return found if found and found[-1].WhichOneof("record_type") == "exit" else None

    records = until(all_records)  # a process of its own writes the file, and may do so after the run has ended
    history = [record.history for record in records if record.WhichOneof("record_type") == "history"]
    found = [{item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in row.item} for row in history]
    assert [row["loss"] for row in found] == pytest.approx([line["loss"] for line in lines])
    assert [row["phases/forward"] for row in found] == pytest.approx([line["phases"]["forward"] for line in lines])


def test_mlflow_keeps_a_run_in_a_store(tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="mlflow is missing: pip install mlflow")
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # which version 3 asks for
    uri = (tmp_path / "mlruns").as_uri()
    config = {"lr": 0.25, "long": "x" * 9999, **{f"option_{i}": i for i in range(150)}}
    report, lines = run(make_tracking([f"mlflow:{uri}"], config), tmp_path)
    client = MlflowClient(uri)
    (kept,) = client.search_runs([client.get_experiment_by_name("bulksample").experiment_id])
    assert kept.info.status == "FINISHED"
    assert kept.data.params["lr"] == "0.25"
    assert len(kept.data.params) == len(config)
    history = client.get_metric_history(kept.info.run_id, "loss")
    assert [(metric.step, metric.value) for metric in history] == [(line["epoch"], pytest.approx(line["loss"])) for line in lines]
    assert float(kept.data.tags["summary.test_accuracy"]) == report["test_accuracy"]
