"""Placements of topology and features where every rank has a device: the runs of CPU ranks, and what is divided among devices."""

import numpy as np
import pytest
from emulation.card import reaching_place
from emulation.host import compiler
from test_device_training import SMALL
from training_runs import run_training, run_with_digests

from bulksample import UsageError
from bulksample.distributed.comm.machines import VARIABLE
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer
from bulksample.training.compute import ComputeContext

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no g++")


@pytest.mark.parametrize(("p", "machines", "options"), [
    (4, "2,2", {"features": "machine"}),
    (2, "2", {"features": "host", "feature_storage": "fp16"}),
    *(pytest.param(*case, marks=pytest.mark.long) for case in (
        (4, "2,2", {"features": "partitioned", "replication": 2, "cache_bytes": 500}),
        (4, "2,2", {"topology": "partitioned", "features": "machine", "partition": "random"}),
        (2, "2", {"topology": "partitioned", "features": "replicated"}), (2, "1,1", {"topology": "partitioned", "features": "host"}),
    )),
], ids=str)  # fmt: skip
def test_devices_train_as_cpu_ranks_do(stored, monkeypatch, p, machines, options):
    monkeypatch.setenv(VARIABLE, machines)
    asked = {**SMALL, **options}

    def trained(where):
        return on_threads(p, lambda comm: run_with_digests(stored / "plain", comm, where(), **asked))

    expected, found = trained(ComputeContext), trained(reaching_place)
    assert [rank[2] for rank in found] == [rank[2] for rank in expected]
    np.testing.assert_allclose(found[0][0], expected[0][0], rtol=0, atol=1e-5)
    report = found[0][1]
    assert report["test_accuracy"] == expected[0][1]["test_accuracy"]
    if options["features"] == "machine":  # rows travel, and none leaves a machine
        assert report["bytes_sent"]["features"] > 0 == report["bytes_between_machines"]["features"]
        assert (report["feature_replication"], report["feature_order"]) == (2, "columns")
    if options["features"] in ("replicated", "host"):
        assert report["features_on"] == "device"


def test_a_machine_with_fewer_ranks_is_refused_on_every_rank(stored, monkeypatch):
    monkeypatch.setenv(VARIABLE, "2,1")

    def rank(comm):
        config = TrainConfig.of(**{**SMALL, "features": "machine"})
        with pytest.raises(UsageError, match="machines of equally many ranks; they have 2 and 1: use features host"):
            make_trainer(config, stored / "plain", comm, [], reaching_place())
        return run_training(stored / "plain", comm, **{**SMALL, "features": "machine", "epochs": 0})[0]["features"]  # a CPU can

    assert on_threads(3, rank) == ["machine"] * 3
