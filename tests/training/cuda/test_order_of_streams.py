"""No step reads memory that another stream may still write, or that has been handed out again: `emulation.order` watches all streams."""

import gc
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress

import numpy as np
import pytest
import torch
from communities import community_graph
from emulation import order
from emulation.apart import WHERE, ApartCard, ApartComm, Apartness, ApartPlace
from emulation.host import compiler
from labelled_edges import pairs_table
from planted_relations import planted, shop
from recorder import Crash, CrashesAt, Recorder

from bulksample.data.link_split import hold_out
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer
from bulksample.training.batches import MiniBatchSource
from bulksample.training.step import STEPS

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no g++")
FUSED = {"input_layer": "fused"}
SMALL = {"fanouts": (3, 2), "hidden": 8, "batch_size": 16, "bulk_size": 2, "epochs": 2, "threads": 1, "seed": 4, "quiet": True}


def links(folder):
    graph = hold_out(community_graph(150), "to", 0.1, 0.1, 20, seed=0)
    graph.save(folder)
    return folder


def pairs(folder, *communities):
    np.savez(folder / "pairs.npz", **pairs_table(communities[0], "multilabel", 200, 2, communities[-1]))
    return {"task": "edges", "edge_labels": str(folder / "pairs.npz"), "batch_size": 16}


GRAPHS = {  # a source, and the options that it needs
    "plain": lambda folder: (community_graph(150), {}), "sparse": lambda folder: (community_graph(150, sparse=True), {}),
    "links": lambda folder: (links(folder), {"task": "links", "batch_size": 200}),
    "edges": lambda folder: (community_graph(150), pairs(folder, community_graph(150).labels)),
    "typed edges": lambda folder: (
        shop(), {"model": "hetero-sage", "target_relation": "user:buys:item", **pairs(folder, np.arange(60) % 4, np.arange(40) % 4)},
    ),
    "typed": lambda folder: (planted(times=True), {"model": "hetero-sage"}),
    "typed links": lambda folder: (
        hold_out(shop(), ("user", "buys", "item"), 0.1, 0.2, 8, seed=0), {"task": "links", "batch_size": 64, "model": "hetero-sage"},
    ),
}  # fmt: skip


class Reaching(ApartPlace):
    """A device that reaches those of other ranks, as over NCCL."""

    def tensors(self, comm):
        return ApartComm(comm)


def trainer_on_device(source, comm=None, place=ApartPlace, callback=None, **options):
    return make_trainer(TrainConfig.of(**{**SMALL, "evaluate": "none", **options}), source, comm, [callback or Recorder()], place())


def faults_of(work):
    """The faults of some work on emulated devices, which are then forgotten."""
    before = list(order.FAULTS)
    with Apartness():
        work()
    found = order.FAULTS[len(before) :]
    order.FAULTS[:] = before
    return found


# ---- the emulation


def opened():
    card = ApartCard()
    return card, card.streams.sample, card.streams.train


def test_a_read_needs_an_event_after_the_write():
    def work(waits):
        _, sample, train = opened()
        with sample.on("write"):
            made = torch.zeros(5, device=WHERE) + 1
            ready = sample.record()
        with train.on("read"):
            if waits:
                train.wait(ready)
            made.sum()
        sample.wait(train.record())

    assert faults_of(lambda: work(True)) == []
    (fault,) = faults_of(lambda: work(False))
    assert "reads memory on the stream 'train' that torch allocated on 'sample'" in fault
    assert "no event comes between this and the last use on 'sample'" in fault


def test_a_write_needs_an_event_after_the_read():
    def work(waits):
        _, sample, train = opened()
        with sample.on("write"):
            made = torch.zeros(5, device=WHERE)
        train.wait(sample.record())
        with train.on("read"):
            made.sum()
        if waits:
            sample.wait(train.record())
        with sample.on("write"):
            made.add_(1)
        train.wait(sample.record())
        sample.wait(train.record())

    assert faults_of(lambda: work(True)) == []
    (fault,) = faults_of(lambda: work(False))
    assert "writes memory on the stream 'sample'" in fault


def test_memory_is_given_back_after_the_last_use_on_another_stream():
    def work(waits):
        card, sample, train = opened()
        with sample.on("write"):
            made = card.tensor(card.kernels.full(8, 3, np.int32))
        train.wait(sample.record())
        with train.on("read"):
            part = made[2:]
            del made
            part.sum()
        if waits:
            sample.wait(train.record())
        del part

    assert faults_of(lambda: work(True)) == []
    (fault,) = faults_of(lambda: work(False))
    assert fault.startswith("memory of the stream 'sample' from backends/cuda/device.py:")
    assert fault.endswith("is given back before that stream waits for 'train', which used it in torch")


def test_kernels_read_and_write_on_the_stream_of_their_phase():
    """A host that has waited for a stream orders it too."""

    def work(waits):
        card, sample, train = opened()
        device = card.kernels
        with sample.on("count"):
            counts = device.full(100, 2, np.int32)
        if waits:
            with sample.on("wait"):
                device.get(counts)
        with train.on("sum"):
            pointers = device.pointers(counts)
            assert device.get(pointers).tolist() == list(range(0, 201, 2))

    assert faults_of(lambda: work(True)) == []
    found = faults_of(lambda: work(False))
    assert any("device.py" in fault and "reads memory on the stream 'train'" in fault for fault in found)


def test_a_copy_to_the_host_is_waited_for_alone():
    """Work that is queued after the copy may not have run when the copy has arrived."""

    def work(later):
        card, sample, train = opened()
        with sample.on("write"):
            made = torch.zeros(5, device=WHERE)
        train.wait(sample.record())
        arrived = card.start_read(made)
        if later:
            with train.on("read"):
                made.sum()
        arrived()
        del made, arrived

    assert faults_of(lambda: work(False)) == []
    assert len(faults_of(lambda: work(True))) == 1


def test_a_thread_that_names_no_stream_is_found():
    def work():
        _, _, train = opened()
        with train.on("write"):
            made = torch.zeros(5, device=WHERE)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(made.sum).result()

    (fault,) = faults_of(work)
    assert fault.endswith("in a thread that queues work on none of its streams")


# ---- training


@pytest.mark.parametrize(("graph", "options"), [
    ("plain", FUSED), ("plain", {"input_layer": "gathered"}), ("plain", {"frontier": "new", **FUSED}),
    ("plain", {"backend": "native", **FUSED}), ("sparse", {}), ("typed", {}), ("typed", {"frontier": "new"}),
    ("typed", {"backend": "native"}),
    *(pytest.param(*case, marks=pytest.mark.long) for case in (
        ("plain", {"sampler": "ladies", "fanouts": (20, 20)}), ("plain", {"sampler": "ladies", "fanouts": (20, 20), "frontier": "new"}),
        ("plain", {"sampler": "fastgcn", "fanouts": (20, 20)}), ("plain", {"sampler": "labor", "model": "gcn"}),
        ("plain", {"sampler": "shadow"}), ("plain", {"sampler": "full"}), ("plain", {"model": "gat"}), ("plain", {"precision": "bf16"}),
        ("plain", {"model": "sage-pool"}), ("plain", {"evaluate": "exact"}), ("plain", {"evaluate": "sampled"}),
        ("plain", {"method": "llcg", "server_steps": 3}), ("plain", {"method": "grappa"}), ("sparse", {"frontier": "new"}),
        ("links", FUSED), ("links", {"input_layer": "gathered"}), ("links", {"decoder": "mlp"}), ("plain", {"model": "gcn", **FUSED}),
        ("edges", FUSED), ("edges", {"input_layer": "gathered", "evaluate": "exact"}), ("typed edges", {"evaluate": "exact"}),
        ("typed", {"sampler": "full"}), ("typed links", {}),
        ("typed", {"evaluate": "sampled"}), ("typed links", {"frontier": "new"}),
    )),
], ids=str)  # fmt: skip
def test_a_run_keeps_the_order_of_its_streams(tmp_path, graph, options):
    source, own = GRAPHS[graph](tmp_path)
    steps = []
    assert faults_of(lambda: steps.append(trainer_on_device(source, **own | options).run()["steps"])) == []
    assert steps[0] > 4


@pytest.mark.parametrize(("graph", "options"), [
    ("plain", {"graph": "partitioned", "fetch_together": 2}), ("plain", {"features": "partitioned"}),
    *(pytest.param(*case, marks=pytest.mark.long) for case in (
        ("plain", {"features": "partitioned", "fetch_together": 3, "frontier": "new"}), ("typed", {"features": "partitioned"}),
        ("plain", {"graph": "partitioned", "sampler": "ladies", "fanouts": (20, 20)}), ("sparse", {"graph": "partitioned"}),
        ("plain", {"graph": "partitioned", "sampler": "fastgcn", "fanouts": (20, 20)}), ("plain", {"method": "random-tma"}),
        ("plain", {"graph": "partitioned", "frontier": "new", "evaluate": "sampled", "cache_bytes": 1000}),
        ("plain", {"graph": "partitioned", "exchange": "rows"}),
    )),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("over", ["nccl", "host"])
def test_ranks_keep_the_order_of_their_streams(tmp_path, graph, options, over):
    """With `nccl`, devices sample block rows and fetch rows from each other."""
    source, own = GRAPHS[graph](tmp_path)
    place = Reaching if over == "nccl" else ApartPlace

    def rank(comm):
        with Apartness():
            return trainer_on_device(source, comm, place, **{"bulk_size": 4, **own, **options}).run()["steps"]

    assert faults_of(lambda: on_threads(2, rank)) == []


class StopsAt(CrashesAt):
    """Asks the run to stop after a number of steps, as a scheduler does."""

    def step(self, *arguments):
        with suppress(Crash):
            super().step(*arguments)
        if not self.left:
            signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("end", [StopsAt, CrashesAt])
def test_a_run_that_ends_in_its_middle_ends_with_its_device(end):
    """The steps that are queued have run when their memory is given back."""

    def work():
        trainer = trainer_on_device(community_graph(150), callback=end(5), batch_size=2, bulk_size=4)
        with pytest.raises(Crash, match="as asked") if end is CrashesAt else nullcontext():
            assert trainer.run()["stopped"]
        assert trainer.context.step > STEPS
        del trainer
        gc.collect()

    assert faults_of(work) == []


def test_ranks_that_stop_keep_the_order_of_their_streams():
    """The next bulk is drawn from block rows meanwhile."""

    def rank(comm):
        with Apartness():
            options = {"graph": "partitioned", "batch_size": 2, "bulk_size": 4}
            trainer = trainer_on_device(community_graph(150), comm, Reaching, **options)
            step = trainer._stepper.step
            trainer._stepper.step = lambda batches, epoch, number, stops: step(batches, epoch, number, stops or number == 5)
            return trainer.run()["stopped"]

    stopped = []
    assert faults_of(lambda: stopped.extend(on_threads(2, rank))) == []
    assert all(stopped)


def leave_early(graph, options, leave, place=ApartPlace, comm=None):
    """Train on some mini-batches and leave the others, after each number of steps: windows are under way, asked for, or yet in a bulk."""
    source, own = GRAPHS[graph](None)
    trainer = trainer_on_device(source, comm, place, **{"batch_size": 8, "bulk_size": 4, **own, **options})
    batches = trainer.context.batches
    for stop in range(1, 6):
        steps = iter(batches)
        for _, step in zip(range(stop), steps, strict=False):
            trainer.method.loss(trainer.context, step)
        del step
        kept = leave(batches)
        del steps
    trainer.context.compute.synchronize()  # as at the end of a run
    del kept


def anew(batches):
    steps = iter(batches)
    next(steps)
    return steps


def moved(batches):
    batches.continue_from(batches.state_dict())


@pytest.mark.parametrize("leave", [MiniBatchSource.drop, moved, anew])
@pytest.mark.parametrize(("graph", "options"), [
    ("plain", FUSED), ("plain", {"input_layer": "gathered"}), ("plain", {"frontier": "new", **FUSED}), ("typed", {"backend": "native"}),
], ids=str)  # fmt: skip
def test_mini_batches_that_no_step_uses_keep_the_order_too(graph, options, leave):
    assert faults_of(lambda: leave_early(graph, options, leave)) == []


@pytest.mark.parametrize("together", [1, 2])
def test_windows_that_no_step_uses_keep_the_order_too(together):
    options = {"graph": "partitioned", "fetch_together": together}

    def rank(comm):
        with Apartness():
            leave_early("plain", options, MiniBatchSource.drop, Reaching, comm)

    assert faults_of(lambda: on_threads(2, rank)) == []
