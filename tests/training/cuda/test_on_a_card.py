"""On a real GPU: training agrees with the CPU within rounding, and kernels read features over the bus."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from communities import community_graph
from planted_relations import planted, shop

from bulksample import Stream, TimeRule, backends, samplers
from bulksample.data.link_split import hold_out
from bulksample.distributed.comm.threads import on_threads
from bulksample.graph.seed_list import SeedList
from bulksample.local_adjacency import LocalAdjacency
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer
from bulksample.training.cuda.compute import CudaComputeContext, open_cuda
from bulksample.training.cuda.device_adjacency import DeviceAdjacency
from bulksample.training.cuda.device_features import DeviceFeatures
from bulksample.training.opening import why_no_cuda
from bulksample.views.features import Features

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(why_no_cuda() is not None, reason=str(why_no_cuda()))]
FEW = 2.5 / 551  # of the accuracy: two of 551 vertices, whose largest two logits are nearly alike
SMALL = {"fanouts": (4, 3, 2), "hidden": 32, "batch_size": 64, "bulk_size": 2, "epochs": 4, "dropout": 0.0, "seed": 4, "quiet": True}


def losses(graph, comm=None, where=None, **options):
    """Return the last loss with the test accuracy, and the report."""
    report = make_trainer(TrainConfig.of(**{**SMALL, **options}), graph, comm, compute=where).run()
    return [report["train_loss"], report["test_accuracy"]], report


@pytest.mark.parametrize(("precision", "near"), [("fp32", 2e-4), ("tf32", 1e-2), ("bf16", 3e-2)])
@pytest.mark.parametrize("model", ["sage", "gcn", "gat", "sage-pool"])
def test_a_gpu_trains_as_the_cpu_does(model, precision, near):
    graph = community_graph(2000)
    expected, _ = losses(graph, device="cpu", model=model)
    got, report = losses(graph, device="cuda", model=model, precision=precision)
    assert got[0] == pytest.approx(expected[0], rel=near, abs=near)
    assert got[1] == pytest.approx(expected[1], abs=max(near, FEW))
    assert [report[key] for key in ("device", "backend", "features_on", "precision")] == ["cuda", "cuda", "device", precision]


@pytest.mark.parametrize("options", [
    {"sampler": "ladies", "fanouts": (64, 64, 64)}, {"frontier": "new"}, {"sampler": "shadow"}, {"backend": "native"},
], ids=str)  # fmt: skip
def test_samplers_train_as_on_the_cpu(options):
    graph = community_graph(2000)
    expected, _ = losses(graph, device="cpu", **options)
    (loss, accuracy), _ = losses(graph, device="cuda", **options)
    assert loss == pytest.approx(expected[0], rel=2e-4)
    assert accuracy == pytest.approx(expected[1], abs=FEW)


@pytest.mark.parametrize("options", [{}, {"model": "hetero-gat"}, {"frontier": "new", "evaluate": "sampled"}], ids=str)
def test_relations_train_as_on_the_cpu(options):
    graph = planted(times=True)
    asked = {"model": "hetero-sage", "fanouts": (4, 3), "batch_size": 16, **options}
    expected, _ = losses(graph, device="cpu", **asked)
    (loss, accuracy), report = losses(graph, device="cuda", **asked)
    assert loss == pytest.approx(expected[0], rel=2e-4)
    assert accuracy == pytest.approx(expected[1], abs=0.04)  # one paper in thirty
    assert losses(graph, device="cuda", **asked)[0] == [loss, accuracy]
    assert [report[key] for key in ("device", "backend", "features_on")] == ["cuda", "cuda", "device"]


def test_links_of_a_relation_train_as_on_the_cpu():
    graph = hold_out(shop(edge_times=True), ("user", "buys", "item"), 0.1, 0.2, 8, seed=0)
    options = {"model": "hetero-sage", "task": "links", "fanouts": (4, 3), "metric": "mrr"}
    made = [make_trainer(TrainConfig.of(**{**SMALL, **options, "device": where}), graph).run() for where in ("cpu", "cuda")]
    assert made[1]["train_loss"] == pytest.approx(made[0]["train_loss"], rel=2e-4)
    assert made[1]["test_mrr"] == pytest.approx(made[0]["test_mrr"], abs=0.02)


@pytest.mark.parametrize("only_new", [False, True])
def test_relations_drawn_on_the_card_stay_there_and_have_the_digests_of_the_reference(only_new):
    graph, card = planted(times=True), open_cuda()
    sampler = replace(samplers.make("sage", (4, 3), frontier="new" if only_new else "all"), time=TimeRule(), stride=16, entries=False)
    listed = SeedList.of(graph, {"paper": np.arange(48)}, np.arange(48))
    seeds = listed.select(np.split(np.arange(48), 3))
    whole = LocalAdjacency(graph, backends.make("reference"), by_type=True)
    expected = [one.digest() for one in sampler.sample_bulk(whole, seeds, Stream(1))]
    got = sampler.sample_bulk(DeviceAdjacency(whole, card), seeds, Stream(1))
    assert all(one.rows["paper"].vertices.is_cuda for one in got)
    assert [one.digest() for one in got] == expected


def test_a_run_repeats_to_the_bit():
    graph = community_graph(2000)
    runs = [losses(graph, device="cuda", dropout=0.5)[0] for _ in range(3)]
    assert runs[0] == runs[1] == runs[2]


@pytest.mark.parametrize("options", [{}, {"feature_norm": "l2", "feature_storage": "bf16"}, {"frontier": "new"}], ids=str)
def test_an_input_layer_in_place_has_the_bits_of_gathered_rows(options):
    graph = community_graph(2000)
    (fused, told), (gathered, _) = (losses(graph, device="cuda", input_layer=way, **options) for way in ("fused", "gathered"))
    assert fused == gathered
    assert told["input_layer"] == "fused"


@pytest.mark.parametrize("hot", [0, 100, 1999])
@pytest.mark.parametrize("half", [False, True])
def test_rows_are_read_over_the_bus(hot, half):
    graph, card = community_graph(2000, width=33, half=half), open_cuda()
    row = graph.features.itemsize * 33
    features = DeviceFeatures(card, Features(graph), np.arange(2000), 4 * 2000 + row * hot if hot else 0)
    assert features.held.rows == hot
    asked = np.random.default_rng(1).integers(0, 2000, 5000).astype(np.int32)
    for vertices in (asked, torch.from_numpy(asked).to(card.where)):
        assert (features.fetch(vertices).cpu().numpy() == graph.features[asked].astype(np.float32)).all()


def test_a_step_does_not_wait_for_the_device():
    """torch makes every wait that it knows an error while a step is made."""
    config = TrainConfig.of(**{**SMALL, "batch_size": 16, "evaluate": "none", "device": "cuda"})
    trainer = make_trainer(config, community_graph(2000))
    step = trainer._stepper.step

    def watched(batches, epoch, number, stop):
        torch.cuda.set_sync_debug_mode("error" if epoch else "default")  # kernels are compiled and memory is taken in the first
        try:
            return step(batches, epoch, number, stop)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    trainer._stepper.step = watched
    assert trainer.run()["steps"] > 4 * 16


@pytest.mark.parametrize("storage", ["given", "fp16", "bf16"])
def test_kernels_read_the_one_copy_of_a_machine(storage):
    """Memory that two ranks map is pinned by both, where it lies; read-only files of a store are tried as well."""
    graph, asked = community_graph(2000, width=32), np.random.default_rng(1).integers(0, 2000, 5000).astype(np.int32)
    expected = Features(graph, storage=storage).fetch(asked)

    def rank(comm):
        features = Features(graph, storage=storage, shared_by=comm)
        there = DeviceFeatures(open_cuda(), features, np.arange(2000), 4 * 2000 + 10 * 128)
        return there.held.rows, torch.equal(there.fetch(asked).cpu(), expected)

    assert on_threads(1, rank) == [(10 if storage == "given" else 20, True)]


def test_tensors_are_sent_and_read_without_waiting():
    card = open_cuda()
    there = card.send(torch.arange(5.0))
    finish = card.start_read(there * 2)
    assert finish().tolist() == [0, 2, 4, 6, 8]
    assert card.send(torch.empty(0)).shape == (0,)


def test_arrays_and_tensors_share_memory():
    card = open_cuda()
    array = card.kernels.full(1000, 7, np.int32)
    tensor = card.tensor(array)
    assert tensor.data_ptr() == array.data.ptr
    tensor.fill_(3)
    torch.cuda.synchronize()
    assert int(card.array(tensor).sum()) == 3000


def test_ranks_share_a_gpu():
    graph = community_graph(2000)
    expected = on_threads(2, lambda comm: losses(graph, comm, device="cpu"))[0][0]
    got, report = on_threads(2, lambda comm: losses(graph, comm, CudaComputeContext(open_cuda())))[0]
    assert got[0] == pytest.approx(expected[0], rel=2e-4)
    assert got[1] == pytest.approx(expected[1], abs=FEW)
    assert report["device_comm"] == "host"


def test_cupy_takes_its_memory_from_torch():
    engine = open_cuda().engine
    before = torch.cuda.memory_allocated()
    held = engine.device.empty(1 << 20, np.uint8)
    assert torch.cuda.memory_allocated() - before >= 1 << 20
    del held
    assert torch.cuda.memory_allocated() == before
