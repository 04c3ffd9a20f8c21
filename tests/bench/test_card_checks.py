"""The checks of a GPU, rehearsed on an emulated device; each finds what it is there for."""

import csv
import io
import itertools
from contextlib import contextmanager

import numpy as np
import pytest
import relation_bulks
import torch
from emulation.host import compiler
from gpu import counters as counted
from gpu import inputs, kernels, memory, models, repeated
from gpu import samples as checks
from gpu.benchmark import Bench, measured
from gpu.checks import run
from gpu.counters import by_kernel
from gpu.traced import trace_summary

from bulksample import LocalAdjacency, Stream, backends, samplers
from bulksample.backends.cuda import nvrtc
from bulksample.backends.reference import Reference
from bulksample.graph.minibatch import MiniBatch
from bulksample.training.batches import MiniBatchSource

needs_compiler = pytest.mark.skipif(compiler() is None, reason="there is no g++")


@needs_compiler
def test_a_sample_that_differs_is_named(rehearsal, monkeypatch):
    held = checks.Samples(400)
    monkeypatch.setattr(held, "_expected", lambda *asked: ["another digest"] * 6)
    found = run({"sage": lambda: held.compare("sage", rehearsal.engine(), checks.FANOUTS[:1])})
    assert found["sage"]["error"].endswith("sage, fanouts (15, 40, 5), frontier all: mini-batches [0, 1, 2, 3, 4, 5] of 6 differ")


@needs_compiler
def test_without_a_pool_each_array_is_an_allocation_of_its_own(rehearsal, monkeypatch):
    import cupy

    with monkeypatch.context() as restored:
        restored.setattr(nvrtc, "_driver", nvrtc._driver)
        cupy.allocator = "a pool"
        checks.without_pool()
        assert cupy.allocator is None
        assert not backends.make("cuda").device.prepares


def test_after_an_error_that_breaks_the_device_no_check_is_run():
    asked = []

    def works():
        asked.append("works")
        if len(asked) > 1:
            raise RuntimeError("cudaErrorIllegalAddress")

    told = []
    checks = {"wrong": lambda: 1 / 0, "right": lambda: 5, "breaks": lambda: 1 / 0, "next": lambda: asked.append("next")}
    found = run(checks, lambda more: told.append(list(more)), works)
    assert told[-1] == list(checks)
    assert found["right"]["found"] == 5
    assert found["next"] == {"error": "not run: the device can do nothing more after breaks: cudaErrorIllegalAddress"}
    assert asked == ["works", "works"]


# ---- the same bulk many times


def by_numpy(arrays):
    """The checksum, by Python's whole numbers."""
    total = 0
    for array in arrays:
        words = np.frombuffer(array.tobytes(), np.int32)
        mixed = sum(int(word) * (2 * place + 1) * repeated.ODD for place, word in enumerate(words))
        total = (total * 1_000_003 + mixed + len(words)) % 2**64
    return total - 2**64 * (total >> 63)


def test_the_checksum_is_that_of_all_words_in_order():
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-(2**62), 2**62, 7), rng.random(5, np.float32), np.zeros(0, np.int32), rng.integers(0, 9, 4).astype(np.int32)]
    tensors = [torch.from_numpy(array) for array in arrays]
    right = repeated.checksum(tensors)
    assert right == by_numpy(arrays)
    swapped = [array.copy() for array in arrays]
    swapped[0][[1, 3]] = swapped[0][[3, 1]]
    flipped = [array.copy() for array in arrays]
    flipped[1].view(np.uint32)[4] ^= 1
    for wrong in (swapped, flipped, arrays[::-1], arrays[:3]):
        assert repeated.checksum([torch.from_numpy(array.copy()) for array in wrong]) != right


@needs_compiler
def test_a_bulk_of_many_that_differs_in_one_word_is_found(rehearsal, monkeypatch):
    checks, tensors_of, calls = repeated.repeated(), repeated.tensors_of, []

    def spoilt(bulk):
        calls.append(None)
        tensors = tensors_of(bulk)
        if len(calls) == 3:
            tensors[-1][-1] += 1
        return tensors

    assert checks["sage, k = 64"]().startswith("3 bulks of ")
    monkeypatch.setattr(repeated, "tensors_of", spoilt)
    with pytest.raises(AssertionError, match="bulk 3 of 3 differs from the first"):
        checks["sage, k = 64"]()


@needs_compiler
def test_all_arrays_of_a_bulk_are_in_its_checksum(rehearsal):
    adjacency, sampler, seeds = repeated._asked(0, "sage", 2)
    bulk = sampler.sample_bulk(adjacency, seeds, repeated.Stream(1))
    held = sum(tensor.numel() * tensor.element_size() for tensor in repeated.tensors_of(bulk))
    weights = sum(block.weights.numel() for minibatch in bulk for block in minibatch.blocks if torch.is_tensor(block.weights))
    expected = sum(8 * len(b.indptr) + 4 * len(b.indices) for m in bulk for b in m.blocks) + 4 * weights
    assert held == expected + sum(m.vertices.numel() * 4 + m.seed_rows.numel() * m.seed_rows.element_size() for m in bulk)


# ---- a device that lags behind


@needs_compiler
@pytest.mark.parametrize("kind", ["sage", "relations", "left in the middle of a bulk"])
def test_each_step_is_queued_behind_a_spin(rehearsal, monkeypatch, kind):
    spins, trainer, made = [], models._trainer, []
    monkeypatch.setattr(rehearsal, "spin", spins.append)
    monkeypatch.setattr(models, "_trainer", lambda options: made.append(trainer(options)) or made[-1])
    models.spun()[kind]()
    steps = 15 if kind.startswith("left") else 2 * made[-1].context.batches.steps
    assert spins == [models.LAG] * steps


def test_a_run_that_a_lag_changes_is_found():
    with pytest.raises(AssertionError, match="lags behind"):
        models._unmoved_by_lag(lambda lag: f"weights after {lag}")
    assert models._unmoved_by_lag(lambda lag: "the same weights") == "the same weights"


@needs_compiler
def test_a_model_whose_loss_is_another_on_the_device_is_found(rehearsal, monkeypatch):
    class Trainer:
        def __init__(self, loss):
            self.run = lambda: {"train_loss": loss}

    losses = {"cuda": iter([1.0, 1.0, 1.0, 1.1, 1.5, 1.5]), "cpu": iter([1.0001, 1.0, 1.0])}
    monkeypatch.setattr(models, "make_trainer", lambda config, graph, compute: Trainer(next(losses["cuda" if compute else "cpu"])))
    check = models.models()["sage"]
    assert check()["cpu"] == 1.0001
    for _ in ("does not repeat", "another loss"):
        with pytest.raises(AssertionError, match="losses differ"):
            check()


# ---- profiles


def event(name, start, length, stream, kind="kernel"):
    return {"name": name, "cat": kind, "ts": start, "dur": length, "args": {"stream": stream}}


def test_a_trace_gives_idle_time_and_what_overlaps():
    """Sampling takes 0 to 40 and 100 to 120, fetching 40 to 60, training 20 to 50 and 90 to 110, of 200 microseconds."""
    events = [
        event("number_found", 0, 30, 7), event("enter_found", 20, 20, 7), event("number_found", 100, 20, 7),
        event("gather_bytes", 40, 20, 8), event("void at::native::reduce<float, 4>(int)", 20, 30, 3), event("Memcpy HtoD (x)", 90, 20, 3),
    ]  # fmt: skip
    found = trace_summary(events, 200e-6, 2)
    assert (found["microseconds"], found["busy_microseconds"], found["launches"]) == (pytest.approx(100), 45.0, 3.0)
    assert found["idle_share"] == pytest.approx(1 - 90 / 200)
    assert found["kernels"]["number_found"] == {"launches": 1.0, "microseconds": 25.0}
    assert found["kernels"]["at::native::reduce"]["microseconds"] == 15.0
    assert found["during_training"] == {"sampling": pytest.approx(30 / 60), "fetching": pytest.approx(10 / 20)}
    assert trace_summary([], 1e-3, 1)["idle_share"] == 1.0


def told_by_ncu(rows):
    """Its CSV: a row for each launch and metric, between lines of its own."""
    file = io.StringIO()
    columns = ["ID", "Process ID", "Kernel Name", "Context", "Stream", "Section Name", "Metric Name", "Metric Unit", "Metric Value"]
    writer = csv.DictWriter(file, columns, quoting=csv.QUOTE_ALL, restval="")
    writer.writeheader()
    names = ["gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"]
    for number, (kernel, *values) in enumerate(rows):
        for name, value in zip(names, values, strict=True):
            writer.writerow({"ID": number, "Kernel Name": kernel, "Metric Name": name, "Metric Value": value})
    return f"==PROF== Connected to process 7\n{file.getvalue()}==PROF== Disconnected\n"


def test_the_bytes_of_kernels_are_read_from_what_ncu_tells():
    rows = [
        ("draw_16", "1,000", "2,500", "100"),
        ("draw_16", "3000", "500", "0"),
        ("draw_8", "10", "1", "2"),
        ("gather_bytes", "5", "6", "8"),
    ]
    found = by_kernel(told_by_ncu(rows))
    assert found["draw_16"] == {"launches": 2, "nanoseconds": 4000, "bytes_read": 3000, "bytes_written": 100}
    parts = counted.against_prediction(found, {"seeds": 10, "rows": 20, "held": 50, "edges": 100, "gathered": 7})
    assert parts["draw"]["bytes"] == 3103
    assert parts["draw"]["predicted"] == 56 * 20 + 36 * 100
    assert parts["draw"]["of_predicted"] == 3103 / 4720
    assert (parts["draw"]["launches"], parts["gather"]["predicted"]) == (3, 7 * 1028)
    with pytest.raises(RuntimeError, match=r"ncu measured nothing; it said: .*ERR_NVGPUCTRPERM"):
        by_kernel("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission")


@needs_compiler
def test_what_is_counted_is_the_second_bulk_and_the_second_gather(rehearsal, monkeypatch, tmp_path):
    """The sizes are those of the bulk; a context of the profiler is open for one of two bulks."""
    counts = measured(Bench(rehearsal), "counters")["counts"]
    seeds, large = inputs.seeds_of(inputs.products(), 16, 16), inputs.products()
    bulk = samplers.make("sage", inputs.FANOUTS).sample_bulk(LocalAdjacency(large, backends.make("reference")), seeds, Stream(1))
    held = np.array([[block.num_sources for block in minibatch.blocks] for minibatch in bulk]).sum(axis=0)
    assert counts["seeds"] == len(seeds.vertices)
    assert (counts["held"], counts["gathered"]) == (held.max(), large.shape[0])
    assert counts["rows"] == counts["seeds"] + sorted(held)[0] + sorted(held)[1]
    seen = []

    @contextmanager
    def context():
        seen.append("on")
        yield
        seen.append("off")

    drawn = counted.drawn
    monkeypatch.setattr(rehearsal, "counted", context)
    monkeypatch.setattr(counted, "drawn", lambda *asked: seen.append("bulk") or drawn(*asked))
    monkeypatch.setattr("sys.argv", ["counters", str(tmp_path / "sizes")])
    counted.main()
    assert seen == ["bulk", "on", "bulk", "off"]


# ---- each comparison finds what differs


def others(function):
    """A function that answers as another one, but differently every second time."""
    turn = itertools.count()
    return lambda *asked: [f"{one} {next(turn)}" for one in function(*asked)]


SPOILT = {  # a check, and what makes one of its sides another
    "relations": (
        lambda: checks.relational("trees", "sage", ((15, 10, 5),)),
        lambda patch: patch.setattr(relation_bulks, "drawn", others(relation_bulks.drawn)),
    ),
    "as native": (
        lambda: repeated.repeated()["sage, k = 64, as the native back end"](),
        lambda patch: patch.setattr(MiniBatch, "digest", lambda self, turn=itertools.count(): str(next(turn))),
    ),
    "words": (
        lambda: kernels.first_launch()["random words"](),
        lambda patch: patch.setattr(Reference, "random_words", lambda self, *asked: np.zeros(1000, np.uint32)),
    ),
    "in place": (
        lambda: models.models()["input layer in place"](),
        lambda patch: patch.setattr(Reference, "spmm", lambda self, pointers, i, w, x, *more: np.zeros((len(pointers) - 1, x.shape[1]))),
    ),
    "prefix sums": (
        lambda: kernels.launch()["prefix sums"](), lambda patch: patch.setattr(kernels.np, "cumsum", lambda *asked, **options: np.zeros(1)),
    ),
}  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("name", SPOILT)
def test_each_comparison_passes_and_finds_what_differs(rehearsal, monkeypatch, name):
    check, spoil = SPOILT[name]
    check()
    spoil(monkeypatch)
    with pytest.raises(AssertionError, match="differ"):
        check()


@needs_compiler
def test_memory_is_checked_in_the_setting_that_is_named(rehearsal, monkeypatch):
    seen = []
    monkeypatch.setattr(
        checks.Samples,
        "compare",
        lambda self, setting, engine, fanouts: seen.append((engine.device.numbering, engine.device.free_bytes)) or "",
    )
    for check in memory.memory().values():
        check()
    assert [numbered for numbered, _ in seen] == ["direct", "hash", None, None, None, None]
    assert [free == 0 for _, free in seen] == [False] * 4 + [True, False]
    assert nvrtc.unavailable_because() is None


@needs_compiler
def test_a_run_is_known_by_its_loss_and_by_all_its_weights(rehearsal, monkeypatch):
    """Another seed has other weights, another sampler too, and leaving a bulk gives other mini-batches than going on."""
    digests = {name: models._trained(options, 0.0) for name, options in models.SPUN.items()}
    assert len(set(digests.values())) == len(digests) - 2  # samples of the host are those of the device, and so are gathered rows
    assert digests["sage"] == digests["samples of the host"] == digests["gathered rows"]
    given = []
    monkeypatch.setattr(models, "_digest", lambda tensors: given.append(tensors) or "")
    models._trained({}, 0.0)
    assert given[0][0].shape == ()
    assert sum(tensor.numel() for tensor in given[0]) > 8 * 32 + 32 * 3
    drops, drop = [], MiniBatchSource.drop
    monkeypatch.setattr(MiniBatchSource, "drop", lambda self: drops.append(1) or drop(self))
    models._left({}, 0.0)
    assert (len(drops), len(given[1])) == (5, 15)
