"""Training on relations on an emulated device: the losses and scores of the CPU, and no tensor read on the wrong side."""

from dataclasses import replace

import numpy as np
import pytest
from emulation.apart import Apart, ApartCard, Apartness, ApartPlace
from emulation.card import emulated_place
from emulation.host import compiler
from labelled_edges import pairs_table
from labelled_edges import trained as trained_on_pairs
from planted_relations import planted, shop, without_parallel_edges
from recorder import Recorder
from relation_bulks import CASES, bulk, kind_of_times, sampler_of
from relations_zoo import library
from test_step_sums import Watched

from bulksample import Stream, backends
from bulksample.data.link_split import hold_out
from bulksample.distributed.comm.threads import on_threads
from bulksample.local_adjacency import LocalAdjacency
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer
from bulksample.training.compute import ComputeContext
from bulksample.training.cuda.device_adjacency import DeviceAdjacency
from bulksample.training.opening import unsupported_on_cuda

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no g++")
ALL_KINDS = ("topology", "features", "gradients", "model", "activations")  # of what ranks send
OF_STEPS = ("gradients", "model")  # exact scores without times run layer by layer on a host, from mini-batches on a device
QUICK = {
    "model": "hetero-sage", "fanouts": (4, 3), "hidden": 8, "epochs": 2, "batch_size": 16, "bulk_size": 2, "dropout": 0.0, "threads": 1,
    "quiet": True,
}  # fmt: skip


def trained(source, comm=None, where=None, **options):
    """Return the loss of every step, and the report."""
    recorder = Recorder()
    made = make_trainer(TrainConfig.of(**{**QUICK, **options}), source, comm, [recorder], where or ComputeContext())
    return recorder.losses, made.run()


def apart(source, comm=None, **options):
    """The same on a device whose tensors the host cannot read."""
    with Apartness():
        recorder = Recorder()
        made = make_trainer(TrainConfig.of(**{**QUICK, **options}), source, comm, [recorder], ApartPlace())
        report = made.run()
        divided = {id(shard) for shard in made.model.shards.values()}
        assert all(isinstance(parameter, Apart) != (id(parameter) in divided) for parameter in made.model.parameters())
    return recorder.losses, report


def scores_of(report):
    return {name: value for name, value in report.items() if name.startswith(("train_", "val_", "test_")) and value is not None}


@pytest.mark.long
@pytest.mark.parametrize("options", [
    {"times": True, "layer_norm": True}, {"frontier": "new", "evaluate": "sampled"},
    *(pytest.param(more, marks=pytest.mark.long) for more in (
        {}, {"edge_times": True, "seed_times": "asked", "strategy": "last"}, {"target": "multilabel"}, {"backend": "native"},
        {"target": "regression", "frontier": "new", "times": True}, {"sampler": "full", "featureless": "constant"}, {"batch_norm": True},
        {"feature_norm": "l2", "feature_storage": "bf16"},
    )),
], ids=str)  # fmt: skip
def test_relations_train_on_a_device_as_on_the_cpu(options):
    kind = {name: options[name] for name in ("target", "times", "edge_times") if name in options}
    graph, asked = planted(**kind), {name: value for name, value in options.items() if name not in ("times", "edge_times")}
    expected, on_host = trained(graph, **asked)
    got, report = apart(graph, **asked)
    assert got == expected
    assert len(got) == 8
    assert scores_of(report) == scores_of(on_host)
    assert (report["device"], report["features_on"]) == ("meta", "device")


@pytest.mark.long
@pytest.mark.parametrize("options", [{"times": True, "heads": 2}, {}, {"frontier": "new", "sampler": "labor"}], ids=str)
def test_attention_agrees_within_rounding(options):
    graph = planted(times="times" in options)
    if "sampler" in options:
        graph = without_parallel_edges(graph)
    asked = {"model": "hetero-gat", **{name: value for name, value in options.items() if name != "times"}}
    expected, on_host = trained(graph, **asked)
    got, report = apart(graph, **asked)
    assert got == pytest.approx(expected, rel=2e-5)
    assert report["val_accuracy"] == on_host["val_accuracy"]


@pytest.mark.long
@pytest.mark.parametrize("options", [
    {"edge_times": True, "evaluate": "sampled", "frontier": "new"},
    *(pytest.param(more, marks=pytest.mark.long) for more in ({}, {"times": True, "decoder": "mlp"}, {"backend": "native"})),
], ids=str)  # fmt: skip
def test_links_of_a_relation_are_predicted_on_a_device(options):
    kind = {name: options[name] for name in ("times", "edge_times") if name in options}
    graph = hold_out(shop(**kind), ("user", "buys", "item"), 0.1, 0.2, 8, seed=0)
    asked = {"task": "links", "batch_size": 64, **{name: value for name, value in options.items() if name not in kind}}
    expected, on_host = trained(graph, **asked)
    got, report = apart(graph, **asked)
    assert got == pytest.approx(expected, rel=1e-6)  # the CPU multiplies pairs as a sparse product
    assert scores_of(report) == pytest.approx(scores_of(on_host), rel=1e-5)
    why = unsupported_on_cuda(TrainConfig.of(**QUICK | asked, exclude_targets="both"))
    assert str(why).startswith("exclude_targets takes edges out of mini-batches on the host")


@pytest.mark.long
@pytest.mark.parametrize("options", [{}, {"edge_times": True, "frontier": "new"}, {"times": True, "evaluate": "sampled"}], ids=str)
def test_labels_of_pairs_are_predicted_on_a_device(options):
    kind = {name: options[name] for name in ("times", "edge_times") if name in options}
    graph, rng = shop(**kind), np.random.default_rng(0)
    table = pairs_table(np.arange(60) % 4, "multilabel", 200, 2, np.arange(40) % 4) | ({"time": rng.integers(5, 45, 200)} if kind else {})
    asked = QUICK | {"target_relation": "user:buys:item", **{name: value for name, value in options.items() if name not in kind}}
    expected = trained_on_pairs(graph, table, None, ComputeContext(), **asked)
    with Apartness():
        got = trained_on_pairs(graph, table, None, ApartPlace(), **asked)
    assert got[1].losses == pytest.approx(expected[1].losses, rel=1e-6)
    assert scores_of(got[0]) == pytest.approx(scores_of(expected[0]), rel=1e-5)


@pytest.mark.long
def test_ranks_train_on_devices_of_their_own():
    graph = planted(times=True)
    expected, on_host = on_threads(2, lambda comm: trained(graph, comm))[0]
    got, report = on_threads(2, lambda comm: apart(graph, comm))[0]
    assert got == expected
    assert scores_of(report) == scores_of(on_host)
    kinds = ("gradients", "model", "activations")
    assert [report["bytes_sent"][kind] for kind in kinds] == [on_host["bytes_sent"][kind] for kind in kinds]


@pytest.mark.long
@pytest.mark.parametrize("options", [{"features": "partitioned"}, {"graph": "partitioned", "times": True}], ids=str)
def test_features_and_relations_in_block_rows_travel_over_the_host(options):
    graph, asked = planted(times="times" in options), {"featureless": "constant", **options}
    asked.pop("times", None)
    expected, on_host = on_threads(2, lambda comm: trained(graph, comm, **asked))[0]
    got, report = on_threads(2, lambda comm: apart(graph, comm, **asked))[0]
    assert got == expected
    assert scores_of(report) == scores_of(on_host)
    assert report["features_on"] == report["features_by"] == "host"
    assert report.get("samples_by") == ("host" if "graph" in options else None)
    kinds = ALL_KINDS if "times" in options else OF_STEPS
    assert [report["bytes_sent"][kind] for kind in kinds] == [on_host["bytes_sent"][kind] for kind in kinds]


@pytest.mark.long
@pytest.mark.parametrize("method", ["random-tma", "llcg"])
def test_averages_of_relations_on_devices(method):
    graph, asked = planted(), {"method": method, "featureless": "constant"}
    expected, on_host = on_threads(3, lambda comm: trained(graph, comm, **asked))[0]
    got, report = on_threads(3, lambda comm: apart(graph, comm, **asked))[0]
    assert got == expected
    assert scores_of(report) == scores_of(on_host)


@pytest.mark.parametrize("frontier", ["all", "new"])
@pytest.mark.parametrize(("rule", "name"), [
    ("static", "sage"), ("last in a window", "sage"),
    *(pytest.param(*case, marks=pytest.mark.long) for case in CASES if case not in (("static", "sage"), ("last in a window", "sage"))),
])  # fmt: skip
def test_minibatches_that_stay_on_the_device_have_the_digests_of_the_reference(rule, name, frontier):
    """Enqueued in one call, and sized by waiting."""
    graph = library(kind_of_times(rule), weighted="weighted" in name, parallel=name != "labor")
    seeds = bulk(graph, kind_of_times(rule) is not None)
    sampler = replace(sampler_of(rule, name, (5, 3, 2), None, frontier), entries=False)
    whole = LocalAdjacency(graph, backends.make("reference"), by_type=True)
    expected = [one.digest() for one in sampler.sample_bulk(whole, seeds, Stream(1), 3)]
    with Apartness():
        for options in ({}, {"free_bytes": 1 << 17}):
            card = ApartCard(**options)
            got = sampler.sample_bulk(DeviceAdjacency(whole, card), seeds, Stream(1), 3)
            card.synchronize()
            assert all(isinstance(part.vertices, Apart) for one in got for part in one.rows.values())
            assert [one.digest() for one in got] == expected


@pytest.mark.long
def test_a_step_does_not_wait_for_the_device_and_a_bulk_waits_once():
    """A step sends its labels and their places; a bulk waits for its sizes, in its sampler, and copies nothing else to the host."""
    waits = []
    seen = Watched(planted(times=True), **QUICK | {"batch_size": 8, "evaluate": "none"}, watch=lambda device: count_gets(device, waits))
    assert len(seen.reads) == 16
    assert not any(seen.reads)
    assert seen.copies == [["send"] * 2] * 16
    assert seen.waits == ["event"] * 2
    assert len(waits) == 2 * 4  # bulks of two mini-batches


@pytest.mark.long
def test_a_step_on_links_sends_the_places_of_its_seeds():
    graph = hold_out(shop(edge_times=True), ("user", "buys", "item"), 0.1, 0.2, 8, seed=0)
    seen = Watched(graph, **QUICK | {"task": "links", "evaluate": "none", "epochs": 1})
    assert not any(seen.reads)
    assert seen.copies == [["send"]] * len(seen.reads)


def count_gets(device, waits):
    get = device.get
    device.get = lambda array: waits.append(array.nbytes) or get(array)


def test_a_step_waits_for_its_samples_and_leaves_an_event_behind():
    notes = []
    trained(planted(), where=emulated_place(notes=notes), epochs=1, evaluate="none")
    steps = [i for i, note in enumerate(notes) if note[:2] == ("train", "record")]
    assert len(steps) == 4
    for t, at in enumerate(steps):
        before = notes[:at]
        assert ("train", "wait", f"sample {t // 2}") in before
        assert ("fetch", "wait", f"sample {t // 2}") in before
        assert {("train", "wait", f"fetch {2 * t}"), ("train", "wait", f"fetch {2 * t + 1}")} <= set(before)  # two types have features
        assert notes[at + 1] == ("fetch", "wait", f"train {t}")
    assert [note for note in notes if note[:2] == ("sample", "wait")] == [("sample", "wait", "train 1"), ("sample", "wait", "train 3")]


def test_features_that_do_not_fit_stay_in_pinned_memory_those_read_most_often_on_the_device():
    plain = planted()
    graph = replace(plain, types=tuple(kind if kind.features is None else replace(kind, features=wide(kind)) for kind in plain.types))
    expected, _ = trained(graph, epochs=1)
    paper, author = (graph.type(name).features.nbytes for name in ("paper", "author"))
    held = sum(relation.adjacency.nbytes() for relation in graph.relations)
    for room, told in (
        (paper + author, "device"),
        (author + 4 * 120 + 256 * 10, "paper: pinned memory, 10 of 120 rows on the device; author: device"),
        (author, "paper: pinned memory; author: device"),
    ):
        losses, report = trained(graph, where=emulated_place(free_bytes=-(-(held + room) * 4 // 3)), epochs=1)
        assert losses == expected
        assert report["features_on"] == told
        assert author <= report["features_device_bytes"] <= room


def wide(kind):
    return np.tile(kind.features, (1, 64))[:, :64].copy()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:for .* copying from a non-meta parameter")  # torch takes "meta" for the one that holds no numbers
def test_a_run_resumes_on_a_device_and_on_the_host(tmp_path):
    graph, kept = planted(times=True), str(tmp_path)
    whole, _ = trained(graph, epochs=3)
    first, _ = apart(graph, epochs=1, checkpoint=kept)
    second, report = apart(graph, epochs=2, checkpoint=kept, resume="auto")
    third, _ = trained(graph, epochs=3, checkpoint=kept, resume="auto")
    assert report["resumed"]
    assert first + second + third == whole


@pytest.mark.long
@pytest.mark.parametrize(("p", "options"), [
    (2, {"features": "partitioned"}), (2, {"graph": "partitioned", "times": True, "evaluate": "sampled"}),
    (4, {"features": "partitioned", "replication": 2}), (2, {"features": "partitioned", "virtual_ranks": 4, "gradient_codec": "bf16"}),
    (2, {"features": "partitioned", "backend": "native"}),
], ids=str)  # fmt: skip
def test_learned_rows_in_block_rows_stay_on_the_host(p, options):
    graph, asked = planted(times="times" in options), {name: value for name, value in options.items() if name != "times"}
    expected, on_host = on_threads(p, lambda comm: trained(graph, comm, **asked))[0]
    got, report = on_threads(p, lambda comm: apart(graph, comm, **asked))[0]
    assert got == expected
    assert scores_of(report) == scores_of(on_host)
    assert report["embedding_bytes"] > 0
    kinds = OF_STEPS if options.get("evaluate", "exact") == "exact" else ALL_KINDS
    assert [report["bytes_sent"][kind] for kind in kinds] == [on_host["bytes_sent"][kind] for kind in kinds]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:for .* copying from a non-meta parameter")
def test_a_run_with_learned_rows_in_block_rows_resumes_on_devices_and_on_hosts(tmp_path):
    graph, options = planted(), {"features": "partitioned", "checkpoint": str(tmp_path)}
    whole, _ = on_threads(2, lambda comm: trained(graph, comm, epochs=3, features="partitioned"))[0]
    first, _ = on_threads(2, lambda comm: apart(graph, comm, epochs=1, **options))[0]
    second, _ = on_threads(2, lambda comm: apart(graph, comm, epochs=2, resume="auto", **options))[0]
    third, _ = on_threads(2, lambda comm: trained(graph, comm, epochs=3, resume="auto", **options))[0]
    assert first + second + third == whole


@pytest.mark.long
def test_links_with_learned_rows_in_block_rows_on_devices():
    graph = hold_out(shop(), ("user", "buys", "item"), 0.1, 0.2, 8, seed=0)
    asked = {"task": "links", "batch_size": 64, "features": "partitioned"}
    expected, on_host = on_threads(2, lambda comm: trained(graph, comm, **asked))[0]
    got, report = on_threads(2, lambda comm: apart(graph, comm, **asked))[0]
    assert got == pytest.approx(expected, rel=1e-6)
    assert scores_of(report) == pytest.approx(scores_of(on_host), rel=1e-5)
