"""Training on an emulated device runs the kernels and streams of a real one, and gives the losses of the CPU."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from communities import community_graph
from emulation.card import emulated_card, emulated_place
from emulation.host import compiler
from labelled_edges import pairs_table, trained
from recorder import Recorder

from bulksample import BackendUnavailable, UsageError
from bulksample.data import store
from bulksample.data.link_split import hold_out
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods import METHODS
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer
from bulksample.training import opening
from bulksample.training.compute import ComputeContext
from bulksample.training.cuda import compute
from bulksample.training.cuda.compute import CudaComputeContext
from bulksample.training.cuda.device_features import DeviceFeatures, fit_rows
from bulksample.training.opening import make_compute_context, why_no_cuda
from bulksample.views.features import Features

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no g++")
SMALL = {"fanouts": (3, 2), "hidden": 8, "batch_size": 32, "bulk_size": 2, "epochs": 2, "threads": 1, "seed": 4, "quiet": True}


def losses(source, comm=None, where=None, **options):
    """Return the loss of every step, and the report."""
    recorder = Recorder()
    trainer = make_trainer(TrainConfig.of(**{**SMALL, **options}), source, comm, [recorder], where)
    return recorder.losses, trainer.run()


@pytest.mark.parametrize("options", [
    {"model": "sage"}, {"model": "gcn"}, {"model": "sage", "frontier": "new"}, {"model": "sage", "hidden": 4, "batch_norm": True},
    {"model": "gcn", "sampler": "labor", "input_dropout": 0.2}, {"model": "sage", "sampler": "shadow"},
    {"model": "sage", "feature_norm": "l2"}, {"model": "sage", "feature_storage": "bf16"}, {"backend": "native", "layer_norm": True},
], ids=str)  # fmt: skip
def test_losses_on_a_device_have_the_bits_of_the_cpu(options):
    graph = community_graph(150)
    expected, on_host = losses(graph, device="cpu", **options)
    got, report = losses(graph, where=emulated_place(), **options)
    assert len(got) == 6
    assert got == expected
    assert report["test_accuracy"] == on_host["test_accuracy"]
    assert (report["features_on"], report["device_comm"]) == ("device", "host")


@pytest.mark.parametrize("options", [
    {"sampler": "ladies", "fanouts": (20, 20)}, {"sampler": "ladies", "fanouts": (20, 20), "frontier": "new"}, {"sampler": "fastgcn"},
    {"precision": "bf16"}, {"model": "gat", "heads": 2}, {"model": "gat", "sampler": "ladies", "fanouts": (20, 20)}, {"model": "sage-pool"},
    {"model": "gat", "precision": "bf16"},
], ids=str)  # fmt: skip
def test_weighted_sums_and_half_precision_agree_within_rounding(options):
    graph = community_graph(150)
    expected, _ = losses(graph, device="cpu", **options)
    got, report = losses(graph, where=emulated_place(options.get("precision", "fp32")), **options)
    np.testing.assert_allclose(got, expected, rtol=2e-2 if "precision" in options else 4e-6)
    assert report["precision"] == options.get("precision", "fp32")


@pytest.mark.parametrize("kind", ["sparse", "half", "weighted"])
def test_every_kind_of_graph_trains_on_a_device(kind):
    graph = community_graph(150, **{kind: True})
    options = {"model": "sage", "input_dropout": 0.3} if kind == "sparse" else {"model": "gcn"}
    expected, _ = losses(graph, device="cpu", **options)
    got, report = losses(graph, where=emulated_place(), **options)
    np.testing.assert_allclose(got, expected, rtol=2e-6 if kind == "sparse" else 0)  # whose entries have weights
    assert report["features_on"] == ("host" if kind == "sparse" else "device")


def test_features_that_do_not_fit_stay_in_pinned_memory_except_frequent_rows():
    graph = community_graph(150, width=64)
    expected, _ = losses(graph, device="cpu", batch_size=8)
    free = int((graph.adjacency.nbytes() + 4 * 150 + 100 * 256) / 0.75)
    got, report = losses(graph, where=emulated_place(free_bytes=free), batch_size=8)
    assert got == expected
    assert report["features_on"].startswith("pinned memory, ")
    assert 0 < report["features_device_bytes"] <= free


def test_the_cached_rows_are_the_most_frequent_ones():
    graph, rng = community_graph(60), np.random.default_rng(1)
    access_count = rng.permutation(60)
    card = emulated_card()
    features = DeviceFeatures(card, Features(graph), access_count, 4 * 60 + 32 * 10)
    assert str(features.held) == "pinned memory, 10 of 60 rows on the device"
    assert set(np.flatnonzero(features.rows._cache.slots >= 0)) == set(np.flatnonzero(access_count >= 50))
    features.rows._x[: 60 * 8].reshape(60, 8)[access_count >= 50] = np.nan  # shows a cached row that is read from the host
    asked = rng.integers(0, 60, 200).astype(np.int32)
    assert (features.fetch(asked).numpy() == graph.features[asked]).all()
    assert features.fetch(np.empty(0, np.int32)).shape == (0, 8)


@pytest.mark.parametrize("storage", ["given", "fp16", "bf16"])
def test_ranks_of_a_machine_read_one_copy_of_the_rows_that_do_not_fit(storage):
    """Nothing is copied in the memory of the host, and frequent rows are on each device."""
    graph, rng = community_graph(60), np.random.default_rng(1)
    access_count, asked = rng.permutation(60), rng.integers(0, 60, 200).astype(np.int32)
    alone = Features(graph, storage=storage)
    expected = DeviceFeatures(emulated_card(), alone, access_count, 1 << 20).fetch(asked)

    def rank(comm):
        features = Features(graph, storage=storage, shared_by=comm)
        there = DeviceFeatures(emulated_card(), features, access_count, 4 * 60 + features.stored()[0][:10].nbytes)
        shared = np.shares_memory(there.rows._x, features.stored()[0])
        return str(there.held), shared, torch.equal(there.fetch(asked), expected)

    assert on_threads(2, rank) == [("pinned memory, 10 of 60 rows on the device", True, True)] * 2


def test_the_host_gathers_if_the_driver_does_not_pin_the_copy_of_a_machine(tmp_path):
    def refuse(array):
        raise RuntimeError("cudaErrorNotSupported")

    graph, place = tmp_path / "g", emulated_place(free_bytes=1 << 15)
    store.save(community_graph(150, width=64), graph)
    place.cuda.kernels.arrays = SimpleNamespace(**{**vars(place.cuda.kernels.arrays), "registered": refuse})
    expected, _ = losses(graph, device="cpu", features="host")
    with pytest.warns(UserWarning, match="the host gathers features, .*: cudaErrorNotSupported"):
        got, report = losses(graph, where=place, features="host")
    assert (got, report["features_on"]) == (expected, "host")


@pytest.mark.parametrize(("free", "rows", "held"), [(1000, 10, 1000), (999, 9, 940), (140, 1, 140), (139, 0, 0), (0, 0, 0)])
def test_rows_are_cached_up_to_the_free_memory(free, rows, held):
    """10 rows of 100 bytes; a cache takes 4 more bytes for every vertex."""
    assert fit_rows(10, 100, free)[::2] == (rows, held)


@pytest.mark.parametrize("way", ["fused", "gathered"])
def test_a_step_waits_for_its_samples_and_leaves_an_event_behind(way):
    """Events order the streams: a step waits for its inputs, and later writes wait for the step."""
    notes = []
    losses(community_graph(150), where=emulated_place(notes=notes), epochs=1, input_layer=way)
    steps = [i for i, note in enumerate(notes) if note[:2] == ("train", "record")]
    assert len(steps) == 3
    for t, at in enumerate(steps):
        bulk, before = t // 2, notes[:at]
        assert ("train", "wait", f"sample {bulk}") in before
        assert ("fetch", "wait", f"sample {bulk}") in before
        assert ("train", "wait", f"fetch {t}") in before
        assert notes[at + 1] == ("fetch", "wait", f"train {t}")
    ends = [note for note in notes if note[:2] == ("sample", "wait")]
    assert ends == [("sample", "wait", "train 1"), ("sample", "wait", "train 2")]  # after the last minibatch of each bulk
    fetched = [i for i, note in enumerate(notes) if note[:2] == ("fetch", "record")]
    assert [sum(i < at for at in steps) for i in fetched] == [3, 3, 2]  # rows of the next mini-batch are fetched before a step


@pytest.mark.parametrize("p", [2, 3])
def test_ranks_with_emulated_devices_have_the_losses_of_cpu_ranks(p):
    graph = community_graph(150)
    expected = on_threads(p, lambda comm: losses(graph, comm, device="cpu", model="gcn"))[0]
    got = on_threads(p, lambda comm: losses(graph, comm, emulated_place(), model="gcn"))[0]
    assert got[0] == expected[0]
    for kind in ("gradients", "model", "activations"):
        assert got[1]["bytes_sent"][kind] == expected[1]["bytes_sent"][kind] > 0
    assert got[1]["test_accuracy"] == expected[1]["test_accuracy"]


def test_features_of_a_partitioned_graph_travel_over_the_host(tmp_path):
    store.save(community_graph(150), tmp_path / "g")
    options = {"graph": "partitioned", "fetch_together": 2, "bulk_size": 2}
    expected = on_threads(2, lambda comm: losses(tmp_path / "g", comm, device="cpu", **options))[0]
    got = on_threads(2, lambda comm: losses(tmp_path / "g", comm, emulated_place(), **options))[0]
    assert got[0] == expected[0]
    assert got[1]["features_on"] == "host"
    assert got[1]["test_accuracy"] == expected[1]["test_accuracy"]


def test_a_run_resumes_from_its_checkpoint(tmp_path):
    graph = community_graph(150)
    whole, _ = losses(graph, where=emulated_place(), epochs=3, checkpoint=str(tmp_path / "a"))
    first, _ = losses(graph, where=emulated_place(), epochs=1, checkpoint=str(tmp_path / "b"))
    rest, report = losses(graph, where=emulated_place(), epochs=3, checkpoint=str(tmp_path / "b"), resume="auto")
    assert report["resumed"]
    assert first + rest == whole


def test_a_missing_gpu_is_refused_and_auto_takes_the_cpu():
    if why_no_cuda() is None:
        pytest.skip("this machine has a GPU")
    with pytest.raises(BackendUnavailable, match=r"device 'cuda' was asked for, but torch .* sees none; use device cpu"):
        make_compute_context(TrainConfig.of(device="cuda"))
    assert not isinstance(make_compute_context(TrainConfig.of()), CudaComputeContext)
    with pytest.raises(UsageError, match="precision tf32 needs a GPU"):
        make_compute_context(TrainConfig.of(precision="tf32"))
    for asked in ("nccl", "mpi"):
        with pytest.raises(UsageError, match=f"device_comm {asked}"):
            make_compute_context(TrainConfig.of(device_comm=asked))


def test_options_without_a_gpu_form_are_refused_there(monkeypatch):
    monkeypatch.setattr(opening, "why_no_cuda", lambda: None)
    monkeypatch.setattr(compute, "open_cuda", emulated_card)
    asked = {"task": "links", "exclude_targets": "self"}
    with pytest.raises(UsageError, match=r"exclude_targets takes edges out.* and device 'cuda' was asked for; use device cpu"):
        make_compute_context(TrainConfig.of(device="cuda", **asked))
    assert not isinstance(make_compute_context(TrainConfig.of(**asked)), CudaComputeContext)
    for method in METHODS:
        assert isinstance(make_compute_context(TrainConfig.of(method=method)), CudaComputeContext)
    torch.backends.cuda.matmul.allow_tf32 = False


@pytest.mark.parametrize(("sampler", "some", "enough"), [
    ("sage", 10**6, 10**7), ("ladies", 6 * 10**6, 10**8), ("fastgcn", 4 * 10**6, 10**8),
])  # fmt: skip
def test_auto_bulk_size_keeps_predicted_bytes_within_the_budget(sampler, some, enough):
    graph = community_graph(150)
    sizes = {}
    for free in (10**5, some, enough):
        where = emulated_place(free_bytes=free)
        report = losses(graph, where=where, sampler=sampler, bulk_size="auto", epochs=1)[1]
        sizes[free] = report["bulk_size"]
        assert report["predicted_bytes"] <= where.budget() or report["bulk_size"] == 1
    assert 1 == sizes[10**5] < sizes[some] <= sizes[enough] == 3


@pytest.mark.parametrize("decoder", ["dot", "mlp"])
def test_links_are_predicted_on_a_device(tmp_path, decoder):
    graph = hold_out(community_graph(150, degree=12), "to", 0.1, 0.1, 20, seed=0)
    graph.save(tmp_path / "g")
    options = {"task": "links", "decoder": decoder, "batch_size": 200, "epochs": 1}
    expected, on_host = losses(tmp_path / "g", device="cpu", **options)
    got, report = losses(tmp_path / "g", where=emulated_place(), **options)
    assert got == expected
    assert report["test_mrr"] == on_host["test_mrr"]


@pytest.mark.parametrize("options", [{}, {"kind": "regression", "model": "gcn"}, {"graph": "partitioned"}], ids=str)
def test_labels_of_pairs_are_predicted_on_a_device(options):
    graph = community_graph(150)
    table = pairs_table(graph.labels, options.get("kind", "class"), features=2)
    asked = {**SMALL, "epochs": 1, **{name: value for name, value in options.items() if name != "kind"}}
    places = ComputeContext, emulated_place
    expected, got = (on_threads(2, lambda comm, place=place: trained(graph, table, comm, place(), **asked)[:2])[0] for place in places)
    assert got[1].losses == expected[1].losses
    score = f"test_{expected[0]['metric']}"
    assert got[0][score] == pytest.approx(expected[0][score], rel=1e-6)
