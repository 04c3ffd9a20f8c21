"""Devices that exchange directly: features and samples of a partitioned graph have the bits and the sent bytes of CPU ranks."""

import json

import numpy as np
import pytest
import torch
from emulation.card import emulated_card, reaching_place
from emulation.host import compiler
from launch import run_ranks
from recorder import Recorder
from test_device_training import SMALL
from training_runs import run_with_digests

from bulksample import PeerLost, UsageError
from bulksample.distributed.comm.threads import SerialComm, on_threads
from bulksample.distributed.matrix.layout import Layout
from bulksample.distributed.matrix.partition import random
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer
from bulksample.training.cuda.compute import ComputeContext
from bulksample.training.cuda.device_comms import GroupTensorComm
from bulksample.training.cuda.device_remote_features import DeviceRemoteFeatures, can_fetch_on_devices
from bulksample.training.tensor_comm import HostTensorComm
from bulksample.views.type_features import RemoteFeatures

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no g++")


def since(comm, before):
    return {kind: tuple(np.subtract(comm.tally[kind], before[kind]).tolist()) for kind in before}


class Rows:
    """A matrix in block rows, partitioned evenly or at random, with a codec, a cache and the rows that each rank requests."""

    def __init__(self, seed, p):
        rng = np.random.default_rng([seed, p])
        self.n, width = int(rng.choice([3, 40, 300])), int(rng.choice([1, 3, 16]))
        self.matrix = rng.standard_normal((self.n, width)).astype(rng.choice([np.float32, np.float16]))
        self.layout = Layout.even(self.n, p) if seed % 2 else Layout.of(random(self.n, p, seed))
        self.codec = ["fp32", "fp16", "bf16"][seed % 3]
        self.cache_bytes, self.access_count = int(rng.choice([0, 64, 100_000])), rng.integers(0, 5, self.n)
        self.asked = [rng.integers(0, self.n, rng.choice([0, 1, 30, 200])).astype(np.int32) for _ in range(p)]

    def source(self, comm):
        own = self.layout.members(comm.rank)
        cached = {"cache_bytes": self.cache_bytes, "access_count": self.access_count[own]} if self.cache_bytes else {}
        return RemoteFeatures(comm, self.layout, self.matrix[own], codec=self.codec, **cached)


@pytest.mark.parametrize("p", [1, 2, 3, 5])
@pytest.mark.parametrize("how", ["host", "gloo"])
def test_rows_fetched_by_devices_equal_those_of_the_host(p, how):
    def body(comm):
        over = HostTensorComm(comm) if how == "host" else GroupTensorComm(comm, how)
        for seed in range(12):
            rows = Rows(seed, p)
            source, free = rows.source(comm), [1 << 30, 0][seed % 4 == 3]
            assert can_fetch_on_devices(source)
            there = DeviceRemoteFeatures(emulated_card(), source, over, free)
            assert there.held.whole == (free > 0 or there.held.n == 0)
            asked, tally = rows.asked[comm.rank], dict(comm.tally)
            expected, sent = source.fetch(asked), since(comm, tally)
            for vertices in (asked, torch.from_numpy(asked)):
                tally = dict(comm.tally)
                got = there.fetch(vertices)
                assert got.numpy().tobytes() == expected.numpy().tobytes()
                assert got.shape == expected.shape
                assert since(comm, tally) == sent
            several, tally = [asked, asked[:0], asked[: seed % 3], asked[::-1].copy()], dict(comm.tally)
            expected = [begin()() for begin in source.ask(several)]  # their ids travel at once
            sent, tally = since(comm, tally), dict(comm.tally)
            for begin, own in zip(there.ask(several), expected, strict=True):
                assert begin()().numpy().tobytes() == own.numpy().tobytes()
            assert since(comm, tally) == sent

    on_threads(p, body)


def test_two_fetches_overlap():
    def body(comm):
        rows = Rows(2, 3)
        source = rows.source(comm)
        there, asked = DeviceRemoteFeatures(emulated_card(), source, GroupTensorComm(comm, "gloo"), 1 << 30), rows.asked[comm.rank]
        first, second = there.start(asked), there.start(asked[::-1].copy())
        expected = source.fetch(asked)
        assert torch.equal(first(), expected)
        assert torch.equal(second(), expected.flip(0))
        assert first() is first()

    on_threads(3, body)


def test_training_waits_for_rows_that_arrive():
    notes = []
    there = DeviceRemoteFeatures(emulated_card(notes), Rows(2, 1).source(SerialComm()), HostTensorComm(SerialComm()), 1 << 30)
    first, second = (there.start(np.zeros(1, np.int32)) for _ in range(2))
    second()
    assert notes == [("fetch", "record", "fetch 0"), ("train", "wait", "fetch 0")]
    first()
    assert notes[2:] == [("fetch", "record", "fetch 1"), ("train", "wait", "fetch 1")]


def test_unknown_rows_and_rows_of_other_ranks_are_refused():
    def beyond(comm):
        there = DeviceRemoteFeatures(emulated_card(), Rows(1, 2).source(comm), HostTensorComm(comm), 1 << 30)
        with pytest.raises(UsageError, match="vertices must be rows of the matrix"):
            there.fetch(np.array([10_000], np.int32))

    def moved(comm):
        there = DeviceRemoteFeatures(emulated_card(), Rows(1, 2).source(comm), HostTensorComm(comm), 1 << 30)
        last = int(there._bounds[-1]) - 1
        if comm.rank == 1:
            there._bounds[1] = last + 1  # rank 1 now believes that rank 0 holds every row
        there.fetch(np.array([last] * comm.rank, np.int32))

    on_threads(2, beyond)
    with pytest.raises(PeerLost, match=r"rank 0 was asked for rows (\d+) to \1; it holds 0 to"):
        on_threads(2, moved)


@pytest.mark.parametrize(("width", "options"), [(8, {"codec": "int8"}), (8, {"codec": "int2"})])
def test_quantized_rows_travel_over_the_host(width, options):
    def body(comm):
        return can_fetch_on_devices(RemoteFeatures(comm, Layout.even(4, 1), np.zeros((4, width), np.float32), **options))

    assert on_threads(1, body) == [False]


def trained(source, comm, where, **options):
    """Return the loss of every step, the report, and the digests of this rank's mini-batches of the first epoch."""
    return run_with_digests(source, comm, where, **{**SMALL, "graph": "partitioned", **options})


@pytest.mark.parametrize(("name", "p", "options"), [
    ("plain", 2, {"fetch_together": 2, "frontier": "new"}),
    ("half", 4, {"replication": 2, "partition": "random", "feature_codec": "bf16", "cache_bytes": 500, "model": "gcn"}),
    *(pytest.param(*case, marks=pytest.mark.long) for case in (
        ("plain", 4, {"partition": "metis", "sampler": "labor"}), ("plain", 3, {"sampler": "ladies", "fanouts": (20, 20)}),
        ("plain", 2, {"sampler": "fastgcn", "fanouts": (20, 20)}),
        ("sparse", 2, {"input_dropout": 0.5}), ("plain", 2, {"exchange": "rows"}), ("plain", 2, {"feature_codec": "int8"}),
        ("plain", 4, {"exchange": "rows", "replication": 2, "sampler": "ladies", "fanouts": (20, 20)}),
        ("plain", 2, {"exchange": "rows-oblivious", "sampler": "fastgcn", "fanouts": (20, 20)}),
        ("plain", 2, {"backend": "native"}), ("plain", 2, {"sampler": "shadow", "bulk_size": "auto"}), ("half", 4, {"sampler": "full"}),
    )),
], ids=str)  # fmt: skip
def test_devices_that_exchange_directly_train_as_cpu_ranks_do(stored, name, p, options):
    """Samples, features and sent bytes are the same; so are the bits of losses, but for weighted sums and gloo sums of three ranks."""
    alone = trained(stored / name, SerialComm(), ComputeContext(), **{**options, "replication": 1, "cache_bytes": 0, "epochs": 0})[2]
    expected = on_threads(p, lambda comm: trained(stored / name, comm, ComputeContext(), **options))
    got = on_threads(p, lambda comm: trained(stored / name, comm, reaching_place(), **options))
    assert dict(pair for _, _, digests in got for pair in digests) == dict(alone)
    near = 2e-6 if p > 2 or name == "sparse" else 0
    np.testing.assert_allclose(got[0][0], expected[0][0], rtol=near)
    report, on_host = got[0][1], expected[0][1]
    sent, there = (dict(r["bytes_sent"], control=0, total=0) for r in (report, on_host))
    assert sent == there
    assert report["test_accuracy"] == on_host["test_accuracy"]
    assert report["device_comm"] == "gloo"
    host_rows = name == "sparse" or options.get("feature_codec") == "int8"
    assert [report["features_on"], report["features_by"]] == (["host", "host"] if host_rows else ["device", "gloo"])
    on_device = not {"exchange", "backend"} & options.keys()
    assert report["samples_by"] == ("gloo" if on_device else "host")


@pytest.mark.parametrize(("name", "options"), [
    ("plain", {"method": "full", "model": "gcn"}), ("half", {"method": "adaqp", "bits": "adaptive", "reassign_every": 2}),
    *(pytest.param(*case, marks=pytest.mark.long) for case in (
        ("plain", {"method": "full", "model": "gat"}), ("plain", {"method": "full", "overlap": False, "form": "naive"}),
        ("sparse", {"method": "full", "input_dropout": 0.3}), ("plain", {"method": "bns", "boundary_share": 0.5}),
        ("plain", {"method": "full", "model": "sage-pool"}), ("weighted", {"method": "full", "model": "gcn"}),
        ("plain", {"method": "adaqp", "bits": "4", "model": "gcn"}), ("plain", {"method": "adaqp", "bits": "16", "batch_norm": True}),
    )),
], ids=str)  # fmt: skip
def test_full_graph_methods_train_on_devices_as_on_cpus(stored, name, options):
    """Weighted sums and attention agree within rounding, the others bit for bit. Hidden rows travel over the host."""

    def run(comm, where):
        recorder = Recorder()
        own = {"hidden": 8, "epochs": 4, "threads": 1, "seed": 4, "quiet": True, **options}
        return recorder, make_trainer(TrainConfig.of(**own), stored / name, comm, [recorder], where).run()

    expected, on_host = on_threads(2, lambda comm: run(comm, ComputeContext()))[0]
    got, report = on_threads(2, lambda comm: run(comm, reaching_place()))[0]
    exact = name in ("plain", "half") and options.get("model") in (None, "gcn")
    np.testing.assert_allclose(got.losses, expected.losses, rtol=0 if exact else 2e-5)
    assert len(got.losses) == 4
    assert report["bytes_sent"]["activations"] == on_host["bytes_sent"]["activations"] > 0
    assert [report["device_comm"], report["features_by"]] == ["gloo", "host" if name == "sparse" else "gloo"]


@pytest.mark.parametrize("threads", [1, 0])
def test_samples_travel_between_devices_whether_or_not_a_thread_samples_ahead(stored, threads):
    options = {"sampling_threads": threads, "epochs": 1}
    losses, report, digests = on_threads(2, lambda comm: trained(stored / "plain", comm, reaching_place(), **options))[0]
    expected = on_threads(2, lambda comm: trained(stored / "plain", comm, ComputeContext(), **options))[0]
    assert [report[key] for key in ("device_comm", "features_by", "samples_by")] == ["gloo", "gloo", "gloo"]
    assert (losses, digests) == (expected[0], expected[2])


def test_bf16_is_refused_by_methods_that_compute_in_float32(stored):
    for method in ("full", "bns", "adaqp", "retexo"):
        with pytest.raises(UsageError, match=r"float32.*: use fp32, or tf32 on a device"):
            make_trainer(TrainConfig.of(method=method, precision="bf16"), stored / "plain")


PROCESSES = """
import json, sys, torch
torch.set_num_threads(1)
sys.path.insert(0, {folder!r})
from emulation.card import emulated_place, reaching_place
from test_device_ranks import trained
from bulksample.distributed.comm.world import world
from waiting import PATIENCE

with world(PATIENCE) as comm:
    found = []
    for place in (reaching_place(), emulated_place()):
        found.append(trained({source!r}, comm, place, replication={c}, epochs=1, **{options!r}))
    drawn = comm.gather_control([digests for _, _, digests in found])
    if comm.rank == 0:
        report = [[r["device_comm"], r["samples_by"], r["features_by"], r["features_on"]] for _, r, _ in found]
        losses = [losses for losses, _, _ in found]
        print(json.dumps([report, [sorted(pair for rank in drawn for pair in rank[way]) for way in (0, 1)], losses]))
"""


@pytest.mark.long
@pytest.mark.parametrize(("p", "c", "options"), [
    (2, 1, {}), (4, 1, {}), (4, 2, {}), (2, 1, {"sampler": "ladies", "fanouts": (20, 20)}),
    (4, 2, {"sampler": "fastgcn", "fanouts": (20, 20)}), (4, 2, {"sampler": "ladies", "fanouts": (20, 20)}),
])  # fmt: skip
def test_processes_on_devices_sample_as_one_rank_on_its_cpu_does(stored, p, c, options):
    """Tensors travel over the host, as if ranks shared a GPU, and directly, as if each rank had its own."""
    alone = trained(stored / "plain", SerialComm(), ComputeContext(), epochs=0, **options)[2]
    code = PROCESSES.format(folder=__file__.rsplit("/", 1)[0], source=str(stored / "plain"), c=c, options=options)
    ended = run_ranks(p, code)
    assert ended.code == 0, ended
    reports, drawn, (grouped, staged) = json.loads(ended.out)
    assert reports == [["gloo", "gloo", "gloo", "device"], ["host", "host", "host", "host"]]
    assert drawn[0] == drawn[1] == [list(pair) for pair in sorted(alone)]
    np.testing.assert_allclose(grouped, staged, rtol=0 if p == 2 else 2e-6)  # a sum of two has the same bits in either order
