"""Every method on an emulated device with memory of its own: the losses of the CPU, and no tensor read on the wrong side."""

import threading
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from communities import community_graph
from emulation.apart import WHERE, Apart, Apartness, ApartPlace
from emulation.host import compiler
from recorder import Recorder
from trainers import RUN_TOKEN, free_port, invited_once_it_listens
from waiting import PATIENCE

from bulksample import UsageError
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.averaging.handshake import TOKEN
from bulksample.methods.averaging.participant import vector_of
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer
from bulksample.training.compute import ComputeContext

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no g++")
SMALL = {"fanouts": (3, 2), "hidden": 8, "batch_size": 16, "bulk_size": 2, "epochs": 3, "threads": 1, "seed": 4, "quiet": True}


def on_host(source, comm, **options):
    """Return the loss of every step, and the report."""
    recorder = Recorder()
    trainer = make_trainer(TrainConfig.of(**{**SMALL, **options}), source, comm, [recorder], ComputeContext())
    return recorder.losses, trainer.run()


def on_device(source, comm, **options):
    recorder = Recorder()
    with Apartness():
        trainer = make_trainer(TrainConfig.of(**{**SMALL, **options}), source, comm, [recorder], ApartPlace())
        report = trainer.run()
        assert all(isinstance(parameter, Apart) for parameter in trainer.model.parameters())
    return recorder.losses, report


def test_the_emulated_device_refuses_to_mix_its_tensors_with_host_tensors():
    there = Apart(torch.ones(3))
    assert there.device == WHERE
    assert (there + 1).cpu().tolist() == there.add(1.0).tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="of the device and of the host"):
        there + torch.ones(3)
    with pytest.raises(RuntimeError, match=r"numpy\(\) is not supported"):
        there.numpy()
    host = torch.zeros(3)
    assert torch.equal(host.copy_(there), torch.ones(3))
    assert there[torch.tensor([0, 2])].shape == (2,)  # as a card takes them
    with pytest.raises(RuntimeError, match="of the device and of the host"):
        host[Apart(torch.tensor([0]))]
    with Apartness():
        assert isinstance(torch.zeros(2, device=WHERE), Apart)
        assert isinstance(torch.zeros(2).to(WHERE), Apart)
        assert not isinstance(torch.zeros(2), Apart)
    with pytest.raises(RuntimeError, match="nobody put on the device"):
        there + torch.zeros(3, device=WHERE)


@pytest.mark.long
@pytest.mark.parametrize(("p", "name", "options"), [
    (2, "plain", {"method": "sync", "model": "gcn", "input_dropout": 0.2}),
    (2, "plain", {"method": "retexo", "model": "gcn", "refine": 1, "epochs": 2}),
    (3, "plain", {"method": "grappa", "view_chunks": 2, "view": "halo", "chunking": "fresh", "seed_weights": "tree"}),
    *(pytest.param(*case, marks=pytest.mark.long) for case in (
        (2, "plain", {"method": "retexo-federated", "epochs": 2}), (2, "plain", {"method": "cofree", "drop_edge": 0.3}),
        (3, "plain", {"method": "random-tma", "interval": "2"}), (2, "plain", {"method": "llcg", "epochs": 2}),
        (2, "plain", {"method": "full"}), (2, "plain", {"method": "bns"}), (2, "plain", {"method": "adaqp", "bits": "adaptive"}),
        (2, "plain", {"method": "sync", "graph": "partitioned", "sampler": "ladies", "fanouts": (20, 20)}),
        (2, "plain", {"method": "sync", "model": "gat"}), (1, "plain", {"method": "sync", "model": "sage-pool", "batch_norm": True}),
        (2, "sparse", {"method": "retexo"}), (2, "plain", {"method": "retexo-federated", "model": "gat"}),
        (2, "plain", {"method": "retexo-federated", "model": "sage-pool"}), (2, "sparse", {"method": "cofree", "model": "gcn"}),
        (2, "plain", {"method": "grappa", "full_graph": True, "chunking": "fresh", "seed_weights": "batch"}),
        (2, "sparse", {"method": "grappa", "model": "gcn", "sampler": "ladies", "fanouts": (20, 20)}), (1, "plain", {"method": "grappa"}),
        (3, "plain", {"method": "super-tma", "average_by": "vertices"}), (3, "plain", {"method": "psgd-pa", "batch_norm": True}),
        (1, "plain", {"method": "llcg", "server_steps": 2}), (2, "sparse", {"method": "psgd-pa", "backend": "native"}),
    )),
], ids=str)  # fmt: skip
def test_every_method_has_the_losses_of_the_cpu_on_a_device(stored, p, name, options):
    """Losses have the same bits, except for attention, pooling and weighted sums; the same bytes are sent."""
    expected, on_cpu = on_threads(p, lambda comm: on_host(stored / name, comm, **options))[0]
    got, report = on_threads(p, lambda comm: on_device(stored / name, comm, **options))[0]
    exact = name == "plain" and options.get("model", "sage") in ("sage", "gcn") and options.get("sampler") != "ladies"
    assert got == (expected if exact else pytest.approx(expected, rel=2e-5))
    assert len(got) > 1
    assert {**report["bytes_sent"], "control": 0, "total": 0} == {**on_cpu["bytes_sent"], "control": 0, "total": 0}
    assert report["test_accuracy"] == on_cpu["test_accuracy"]
    parts = options["method"] in ("cofree", "grappa", "random-tma", "super-tma", "psgd-pa", "llcg")
    assert not parts or report["features_on"] == ("device" if name == "plain" else "host")


@pytest.mark.filterwarnings("ignore:for .* copying from a non-meta parameter")  # torch takes "meta" for the one that holds no numbers
@pytest.mark.long
@pytest.mark.parametrize(("p", "options"), [
    (2, {"method": "llcg", "interval": "3"}), (2, {"method": "retexo"}), (2, {"method": "retexo-federated"}),
    (3, {"method": "psgd-pa", "interval": "5"}), (2, {"method": "grappa", "chunking": "fresh"}), (2, {"method": "cofree"}),
    (1, {"method": "llcg"}),
], ids=str)  # fmt: skip
def test_every_method_resumes_on_a_device(stored, tmp_path, p, options):
    """Resume from an early checkpoint, which is in the middle of a stage."""
    options = {**options, "checkpoint": str(tmp_path), "checkpoint_every": 2, "epochs": 2}
    whole = on_threads(p, lambda comm: on_device(stored / "plain", comm, **options))[0]
    first = sorted(tmp_path.glob("step-*"))[0]
    again = {**options, "resume": str(first), "checkpoint": None, "checkpoint_every": 0}
    rest = on_threads(p, lambda comm: on_device(stored / "plain", comm, **again))[0]
    assert rest[1]["resumed"]
    assert 0 < len(rest[0]) < len(whole[0])
    assert rest[0] == whole[0][-len(rest[0]) :]
    assert rest[1]["test_accuracy"] == whole[1]["test_accuracy"]


def joined(address, graph, where, seen):
    """Train for the server as soon as it listens, with other vertices from before the first epoch."""
    config = invited_once_it_listens(address)
    with Apartness() if where is ApartPlace else nullcontext():
        trainer = make_trainer(config, graph, compute=where())
        mine = trainer.method.participant
        others = np.flatnonzero(np.arange(graph.n) % 3 != mine.part).astype("<i4")
        mine._new_members = mine._members._replace(payload=others.tobytes())
        trainer.run()
        seen.append((trainer.context.view.adjacency.n, type(trainer.context.view.features).__name__))


def served(graph, where):
    """Return the weights of a TCP server with two trainers, its report, and the size and features of the trainers' parts."""
    seen = []
    address = f"127.0.0.1:{free_port()}"
    threads = [threading.Thread(target=joined, args=(address, graph, where, seen), daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    asked = {"method": "llcg", "tolerate_failures": True, "trainers": 2, "listen": address, "interval": "2"}
    asked |= {"timeout": PATIENCE, "grace": PATIENCE}
    with Apartness() if where is ApartPlace else nullcontext():
        server = make_trainer(TrainConfig.of(**SMALL | asked), graph, compute=where())
        report = server.run()
    for thread in threads:
        thread.join(PATIENCE)
    return vector_of(server.model), report, seen


@pytest.mark.long
def test_a_server_and_its_trainers_over_tcp_compute_on_devices(monkeypatch):
    monkeypatch.setenv(TOKEN, RUN_TOKEN)
    graph = community_graph(150)
    expected, on_cpu, on_hosts = served(graph, ComputeContext)
    got, report, on_devices = served(graph, ApartPlace)
    assert (on_hosts, on_devices) == ([(100, "Features")] * 2, [(100, "DeviceFeatures")] * 2)
    assert np.array_equal(got, expected)
    assert [one["responders"] for one in report["rounds"]] == [[0, 1]] * 3
    assert (report["test_accuracy"], report["bytes_sent"]["model"]) == (on_cpu["test_accuracy"], on_cpu["bytes_sent"]["model"])
    assert report["device_comm"] == "host"


def test_averaging_over_the_host_refuses_other_transports():
    for asked in ("nccl", "mpi"):
        with pytest.raises(UsageError, match=f"averaged on the host; got device_comm {asked}: use auto or host"):
            make_trainer(TrainConfig.of(method="psgd-pa", device_comm=asked), community_graph(20), compute=ComputeContext())


def test_bf16_is_refused_for_full_graph_passes_over_a_part():
    for options in ({"method": "cofree"}, {"method": "grappa", "full_graph": True}):
        with pytest.raises(UsageError, match="use fp32, or tf32 on a device"):
            make_trainer(TrainConfig.of(precision="bf16", **options), community_graph(20), compute=ComputeContext())
