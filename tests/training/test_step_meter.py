"""The figures of a step: what is counted and watched, that watching changes no bit, and who gets which figures."""

import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
import torch
from communities import community_graph
from planted_relations import planted
from training_runs import run_training, weights_of
from waiting import PATIENCE

import bulksample as bs
from bulksample.data.link_split import hold_out
from bulksample.distributed.comm.threads import SerialComm, on_threads
from bulksample.nn.model import Gnn
from bulksample.nn.own_model import OwnModel
from bulksample.training import step_meter
from bulksample.training.batches import StepBatch
from bulksample.training.step_meter import ProductWatch, StepMeter, slowest, step_line

SMALL = {"fanouts": (5, 5), "hidden": 8, "batch_size": 20, "epochs": 2, "threads": 1, "seed": 3}
RUNS = {
    "sage": {"dropout": 0.5}, "sage in bf16": {"precision": "bf16", "dropout": 0.5}, "gcn": {"model": "gcn", "batch_norm": True},
    "gat": {"model": "gat", "heads": 2, "input_dropout": 0.2}, "gat in bf16": {"model": "gat", "precision": "bf16"},
    "sage-pool": {"model": "sage-pool", "layer_norm": True}, "virtual ranks": {"virtual_ranks": 2, "batch_norm": True, "batch_size": 10},
    "hetero-sage": {"model": "hetero-sage", "batch_size": 8, "dropout": 0.5}, "hetero-gat": {"model": "hetero-gat", "batch_size": 8},
    "links": {"task": "links", "decoder": "mlp", "batch_size": 100}, "links by dot": {"task": "links", "batch_size": 100},
    "sparse features": {}, "grappa": {"method": "grappa"}, "llcg": {"method": "llcg", "server_steps": 1, "interval": "2"},
}  # fmt: skip


def source_of(name):
    if name.startswith("hetero"):
        return planted()
    if name.startswith("links"):
        return hold_out(community_graph(n=400, degree=12), "to", 0.1, 0.1, 20, seed=0)
    return community_graph(sparse=name == "sparse features")


@pytest.mark.parametrize("name", [*list(RUNS)[:3], *(pytest.param(name, marks=pytest.mark.long) for name in list(RUNS)[3:])])
def test_watching_changes_no_bit_of_the_weights(name, monkeypatch):
    source = source_of(name)
    report, recorder, trainer = run_training(source, **{**SMALL, **RUNS[name]})
    assert report["step"]["watched_steps"] == 2
    assert report["step"]["gflop"] > 0
    monkeypatch.setattr(StepMeter, "_watchable", lambda self: False)
    blind, of_blind, unwatched = run_training(source, **{**SMALL, **RUNS[name]})
    assert (blind["step"]["watched_steps"], recorder.losses) == (0, of_blind.losses)
    assert torch.equal(weights_of(trainer), weights_of(unwatched))


def test_parts_of_a_step_add_up_to_it():
    found = bs.train(community_graph(), **SMALL)["step"]
    assert 0 < found["products_ms"] <= found["ms"] - found["waiting_ms"]
    assert found["products_ms"] + found["memory_ms"] + found["waiting_ms"] == pytest.approx(found["ms"])
    assert found["floor_ms"] == pytest.approx(found["floor_bytes"] / found["copy_gb_per_second"] / 1e6)


class Clock:
    """A ledger whose seconds a test sets."""

    def __init__(self):
        self.spent = dict.fromkeys(step_meter._TRAINING, 0.0)

    def seconds(self, *names):
        return sum(self.spent[name] for name in names)


def meter_of(model=None, alone=True, has_device=False):
    model = model or Gnn("sage", [4, 3])
    context = SimpleNamespace(ledger=Clock(), model=model, compute=SimpleNamespace(has_device=has_device), comm=SerialComm())
    return StepMeter(context, alone), context.ledger.spent


BATCH = StepBatch(SimpleNamespace(blocks=[], rows={}), torch.ones(6, 4))


def play(meter, spent, sizes, seconds, batch=BATCH):
    """Make epochs of so many steps; `seconds` gives those of each phase in step number i. Return the steps that were watched."""
    watched = []
    for epoch, steps in enumerate(sizes):
        for step in range(steps):
            with meter.step(epoch, step, steps), meter.passes(batch):
                if meter._watch is not None:
                    watched.append((epoch, step))
                    meter._watch.seconds = 0.25 * seconds(step)["forward"]
                for name, value in seconds(step).items():
                    spent[name] += value
            spent["evaluate"] = 1000.0
    return watched


@pytest.fixture
def unmeasured(monkeypatch):
    """No bytes are counted, watching costs nothing, and a copy moves a gigabyte a second."""
    monkeypatch.setattr(StepMeter, "_bytes", lambda self, batch: {"inputs": 1e6})
    monkeypatch.setattr(step_meter, "watching_seconds", lambda: 0.0)
    monkeypatch.setattr(step_meter, "run_copy_rate", lambda ranks: 1.0)


def test_steps_after_the_first_five_count(unmeasured):
    meter, spent = meter_of()
    first_five = iter([100.0] * 5)
    play(meter, spent, [9], lambda step: {"sample": next(first_five, 0.5), "fetch": 0.5, "forward": 2.0, "backward": 1.0, "step": 1.0})
    weights = sum(parameter.numel() for parameter in meter._context.model.parameters())
    found = meter.figures()
    assert {name: found[name] for name in ("ms", "waiting_ms", "products_ms", "memory_ms", "steps", "watched_steps")} == pytest.approx(
        {"ms": 5000, "waiting_ms": 1000, "products_ms": 500, "memory_ms": 3500, "steps": 4, "watched_steps": 1}
    )
    assert (found["floor_bytes"], found["floor_ms"]) == (1e6 + 28 * weights, pytest.approx(1 + 28e-6 * weights))


def test_a_batch_without_labels_is_not_the_one_that_is_watched(unmeasured):
    """Its passes compute nothing, so the next step is watched in its place."""
    meter, _ = meter_of()
    tried = []
    for step in range(9):
        with meter.step(0, step, 9), meter.passes(BATCH):
            if meter._watch is not None:
                tried.append(step)
                if step == 5:
                    meter.skip_passes()
    assert tried == [5, 6]


@pytest.mark.parametrize(("alone", "waiting", "computing"), [(True, 1000, 3000), (False, 2000, 2000)], ids=["one rank", "several ranks"])
def test_between_ranks_an_all_reduce_is_waiting(unmeasured, alone, waiting, computing):
    meter, spent = meter_of(alone=alone)
    play(meter, spent, [9], lambda step: {"fetch": 1.0, "forward": 2.0, "reduce": 1.0})
    found = meter.figures()
    assert (found["waiting_ms"], found["memory_ms"] + found["products_ms"]) == pytest.approx((waiting, computing))


@pytest.mark.parametrize(
    ("sizes", "watched"),
    [
        ([9, 9], [(0, 5), (1, 5)]), ([5, 5, 5], [(1, 3), (2, 3)]), ([6, 6], [(1, 4)]), ([2, 2, 2, 2], [(3, 0)]),
        ([1] * 7, [(5, 0), (6, 0)]), ([5], []),
    ],
)  # fmt: skip
def test_one_step_of_an_epoch_is_watched_but_not_its_last(unmeasured, sizes, watched):
    assert play(*meter_of(), sizes, lambda step: {"forward": 1.0}) == watched


def test_products_are_the_share_of_watched_steps(unmeasured):
    """The watched step takes twice as long as others, of which a quarter is products."""
    meter, spent = meter_of()
    play(meter, spent, [9], lambda step: {"forward": 2.0 if step == 5 else 1.0})
    found = meter.figures()
    assert found["ms"] == pytest.approx(1250)
    assert found["products_ms"] == pytest.approx(1250 / 4)


def test_what_watching_costs_is_taken_off(unmeasured, monkeypatch):
    monkeypatch.setattr(step_meter, "watching_seconds", lambda: 0.1)
    meter, spent = meter_of()

    def seconds(step):
        if meter._watch is not None:
            meter._watch.calls = 5
        return {"forward": 1.0}

    play(meter, spent, [9], seconds)
    assert meter.figures()["products_ms"] == pytest.approx(1000 * 0.25 / (1 - 0.5))


@pytest.mark.parametrize("case", ["device", "own module", "compiled"])
def test_what_cannot_be_told_is_left_out(unmeasured, case):
    model = Gnn("sage", [4, 3])
    if case == "compiled":
        model.layers[0]._compiled_call_impl = lambda *given: None
    if case == "own module":
        model = OwnModel(Plain(), "plain", 3, 2)
    meter, spent = meter_of(model, has_device=case == "device")
    assert play(meter, spent, [9], lambda step: {"forward": 1.0, "fetch": 0.5}) == []
    found = meter.figures()
    assert found == {"ms": pytest.approx(1500), "waiting_ms": pytest.approx(500), "steps": 4, "watched_steps": 0}
    assert step_line(found) == "step 1,500 ms: waiting 500"


class Plain(torch.nn.Module):
    """Two layers of plain torch."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(8, 8), torch.nn.Linear(8, 3)])

    def forward(self, x, blocks):
        for layer, block in zip(self.layers, blocks, strict=False):
            x = layer(block.aggregate(x)).relu()
        return x


def test_a_module_of_the_users_has_a_step_and_its_waiting():
    found = bs.train(community_graph(), **{name: value for name, value in SMALL.items() if name != "hidden"}, model=Plain())["step"]
    assert found.keys() == {"ms", "waiting_ms", "steps", "watched_steps"}


def test_a_floor_needs_known_layers(unmeasured, monkeypatch):
    monkeypatch.setattr(StepMeter, "_bytes", lambda self, batch: None)
    meter, spent = meter_of()
    play(meter, spent, [9], lambda step: {"forward": 1.0})
    found = meter.figures()
    assert "products_ms" in found
    assert not {"floor_ms", "floor_bytes"} & found.keys()
    assert step_line(found) == "step 1,000 ms: products 250, memory 750, waiting 0"


@pytest.mark.parametrize("method", ["full", "bns", "adaqp", "retexo", "cofree"])
def test_methods_without_minibatches_have_no_figures(method):
    options = {"fanouts": (5, 5), "hidden": 8, "epochs": 7, "threads": 1} | ({"epochs": 3} if method == "retexo" else {})
    assert bs.train(community_graph(), method=method, **options)["step"] is None


def test_a_run_of_five_steps_has_no_figures():
    assert bs.train(community_graph(), **{**SMALL, "batch_size": 1000, "epochs": 5})["step"] is None
    assert bs.train(community_graph(), **{**SMALL, "batch_size": 1000, "epochs": 6})["step"]["steps"] == 1


def test_ranks_report_the_one_that_computes_longest():
    one, two = ({"ms": 9.0, "waiting_ms": waiting} for waiting in (4.0, 5.0))
    assert slowest([None, two, one]) is one
    assert slowest([None]) is None
    reports = on_threads(2, lambda comm: run_training(community_graph(), comm, **SMALL)[0]["step"])
    assert reports[0] == reports[1]
    assert reports[0]["waiting_ms"] > 0


def test_one_thread_watches_at_a_time(unmeasured):
    def passed_by(meter, spent):
        return play(meter, spent, [9, 9], lambda step: {"forward": 1.0})

    with step_meter._ONE_WATCH:
        assert passed_by(*meter_of()) == []
    assert passed_by(*meter_of()) == [(0, 5), (1, 5)]


def test_a_failed_step_ends_its_watch(unmeasured):
    meter, spent = meter_of()
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        play(meter, spent, [9], lambda step: {"forward": 1 / (5 - step)})
    assert play(*meter_of(), [9], lambda step: {"forward": 1.0}) == [(0, 5)]
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None
    assert "products_ms" not in meter.figures()


@pytest.mark.parametrize(
    ("call", "flops"),
    [
        (lambda a, b, c: a @ b, 2 * 4 * 5 * 6), (lambda a, b, c: torch.addmm(c, a, b), 2 * 4 * 5 * 6),
        (lambda a, b, c: c.addmm_(a, b), 2 * 4 * 5 * 6), (lambda a, b, c: torch.mm(a, b, out=c), 2 * 4 * 5 * 6),
        (lambda a, b, c: torch.bmm(a.expand(3, 4, 5), b.expand(3, 5, 6)), 3 * 2 * 4 * 5 * 6),
        (lambda a, b, c: torch.baddbmm(c.expand(3, 4, 6), a.expand(3, 4, 5), b.expand(3, 5, 6)), 3 * 2 * 4 * 5 * 6),
        (lambda a, b, c: torch.nn.functional.linear(a, b.T, c[0]), 2 * 4 * 5 * 6), (lambda a, b, c: a @ b[:, 0], 2 * 4 * 5),
        (lambda a, b, c: torch.einsum("ij,jk->ik", a, b), 2 * 4 * 5 * 6), (lambda a, b, c: (a.relu() + 1).sum(), 0),
    ],
)  # fmt: skip
def test_products_are_counted_by_their_shapes(call, flops):
    a, b, c = torch.ones(4, 5), torch.ones(5, 6), torch.ones(4, 6)
    expected = call(a.clone(), b.clone(), c.clone())
    with ProductWatch() as watch:
        found = call(a, b, c)
    assert torch.equal(found, expected)
    assert watch.flops == flops
    assert (watch.seconds > 0) == (flops > 0)
    assert watch.calls > 0


def test_the_backward_pass_is_watched_in_the_same_thread_alone():
    a, b = torch.ones(4, 5, requires_grad=True), torch.ones(5, 6, requires_grad=True)
    with ProductWatch() as watch:
        (a @ b).sum().backward()
        other = threading.Thread(target=lambda: torch.ones(9, 9) @ torch.ones(9, 9))
        other.start()
        other.join()
    assert watch.flops == 3 * 2 * 4 * 5 * 6  # the product, and a gradient of each factor


def test_watching_imports_no_compiler():
    code = """
import sys, torch
from bulksample.training.step_meter import ProductWatch, watching_seconds
with ProductWatch() as watch:
    torch.ones(3, 3) @ torch.ones(3, 3)
assert 0 <= watching_seconds() and watch.flops == 54
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout.strip() == "False", done.stderr


def test_the_line_for_people():
    figures = {"ms": 412.3, "products_ms": 180.2, "memory_ms": 160.0, "floor_ms": 119.7, "waiting_ms": 20.04}
    assert step_line(figures) == "step 412 ms: products 180, memory 160 (floor 120), waiting 20"
    small = {name: value / 1000 for name, value in figures.items()}
    assert step_line(small) == "step 0.412 ms: products 0.18, memory 0.16 (floor 0.12), waiting 0.02"
    assert step_line({**figures, "ms": 9999.6}).startswith("step 10,000 ms: ")


def test_a_resumed_run_reaches_the_weights_of_one_that_was_not_watched_there(tmp_path):
    """Other steps of the process are watched then."""
    graph = community_graph()
    whole = run_training(graph, **{**SMALL, "epochs": 4})
    run_training(graph, **SMALL, checkpoint=str(tmp_path))
    report, _, resumed = run_training(graph, **{**SMALL, "epochs": 4}, checkpoint=str(tmp_path), resume="auto")
    assert (report["resumed"], report["step"]["watched_steps"]) == (True, 2)
    assert torch.equal(weights_of(whole[2]), weights_of(resumed))
