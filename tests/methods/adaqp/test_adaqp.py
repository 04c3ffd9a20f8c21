"""AdaQP: 32 bits is exact training; bytes are those of the formula; what is rounded, by how much, and what may not depend on time."""

import json
import threading

import numpy as np
import pytest
import torch
from communities import community_graph
from launch import run_ranks
from sweeps import sweep
from training_runs import run_training, weights_of
from waiting import PATIENCE

from bulksample import CSR, Graph, UsageError, backends
from bulksample.data import store
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.adaqp import widths
from bulksample.methods.adaqp.assignment import Assignment
from bulksample.methods.adaqp.widths import links_of

STILL = {"method": "adaqp", "layers": 3, "hidden": 12, "epochs": 12, "lr": 0.01, "dropout": 0.0, "threads": 1}


def trained(source, comm, **options):
    """Train, and return the losses of all epochs, all weights in one vector, and the report."""
    chosen = {"reassign_every": 3} if options.get("bits", "adaptive") in ("adaptive", "uniform", "random") else {}
    report, recorder, trainer = run_training(source, comm, **{**STILL, **chosen, **options})
    return recorder.losses, weights_of(trainer), report


def of_threads(p, source, **options):
    return on_threads(p, lambda comm: trained(source, comm, **options))


def same(a, b):
    return all(torch.equal(x[1], y[1]) for x, y in zip(a, b, strict=True))


# ---- limits


@pytest.mark.parametrize("p", [1, 4])
@sweep("options", [{}, {"model": "gcn", "form": "naive"}, {"model": "gat", "heads": 2, "dropout": 0.5}])
def test_32_bits_is_exact_training_to_the_bit(stored, p, options):
    exact = {"method": "full", "reassign_every": None, **options}
    assert same(of_threads(p, stored / "plain", bits="32", **options), of_threads(p, stored / "plain", **exact))


@pytest.mark.long
@pytest.mark.parametrize(("bits", "most"), [("16", 5e-3), ("8", 2e-2), ("4", 0.2)])
def test_more_bits_are_nearer_to_exact_training(stored, bits, most):
    exact = np.array(of_threads(4, stored / "plain", bits="32")[0][0])
    losses = np.array(of_threads(4, stored / "plain", bits=bits)[0][0])
    assert 0 < np.abs(losses - exact).max() < most
    assert losses[-1] < losses[0]


def test_alone_nothing_is_rounded(stored):
    for bits in ("2", "adaptive", "random"):
        assert same(of_threads(1, stored / "plain", bits=bits), of_threads(1, stored / "plain", bits="32"))


# ---- what may not change a bit


@sweep("options", [{"bits": "adaptive"}, {"bits": "random", "model": "gcn", "form": "naive"}, {"bits": "2", "model": "gat", "heads": 2}])
def test_overlap_does_not_change_a_bit(stored, options):
    both = [of_threads(4, stored / "plain", dropout=0.5, overlap=overlap, **options) for overlap in (True, False)]
    assert same(*both)


@sweep("bits", ["adaptive", "uniform", "random", "2"])
def test_a_run_repeats_and_back_ends_agree(stored, bits):
    runs = [of_threads(3, stored / "plain", bits=bits, partition="random", backend=backend) for backend in backends.available() * 2]
    assert all(same(run, runs[0]) for run in runs)


def test_the_solving_thread_may_take_its_time(stored, monkeypatch):
    """Widths of an epoch depend on its number alone."""
    quick = of_threads(3, stored / "plain")
    begin, solve, wanted, late = Assignment.begin, Assignment._solve, threading.Event(), []

    def begun(self, epoch):
        if self._comm.rank == 0 and epoch == self._due:
            wanted.set()
        begin(self, epoch)

    def solved(self, received):
        late.append(wanted.wait(PATIENCE))  # until the epoch begins that needs the widths
        wanted.clear()
        return solve(self, received)

    monkeypatch.setattr(Assignment, "begin", begun)
    monkeypatch.setattr(Assignment, "_solve", solved)
    again = of_threads(3, stored / "plain")
    assert late
    assert all(late)
    wanted.set()  # for widths that no epoch of this run needs
    assert same(again, quick)


@sweep("bits", ["adaptive", "random"])
@sweep("stop", [4, 3, 5, 8])
def test_a_resumed_run_goes_on_to_the_bit(stored, tmp_path, bits, stop):
    """Stopped before an assignment, while one is being solved, and after."""
    options = {"bits": bits, "dropout": 0.5, "partition": "random"}
    whole = of_threads(3, stored / "plain", **options)
    of_threads(3, stored / "plain", epochs=stop, checkpoint=str(tmp_path / "c"), **options)
    resumed = of_threads(3, stored / "plain", checkpoint=str(tmp_path / "c"), resume="auto", **options)
    assert same(resumed, whole)
    assert resumed[0][2]["assignments"] == whole[0][2]["assignments"]


def test_a_run_resumed_on_other_ranks_begins_with_8_bits(stored, tmp_path):
    of_threads(3, stored / "plain", epochs=8, checkpoint=str(tmp_path / "c"))
    resumed = of_threads(2, stored / "plain", epochs=9, checkpoint=str(tmp_path / "c"), resume="auto")
    assert resumed[0][2]["mean_bits"] == 8


# ---- options


@sweep("options", [
    {"message_coding": "difference"}, {"message_coding": "feedback", "message_rounding": "nearest"}, {"noise_weights": "squared_sum"},
    {"message_header": "fp32"}, {"links": "measured"}, {"variance_weight": 0.9},
], quick=2)  # fmt: skip
def test_options_train(stored, options):
    losses, _, report = of_threads(3, stored / "plain", **options)[0]
    assert losses[-1] < losses[0]
    assert report["assignments"] == 3


@pytest.mark.parametrize(("options", "message"), [
    ({"message_coding": "feedback"}, "use message_rounding nearest"),
    ({"message_coding": "difference", "checkpoint": "c"}, "does not hold"),
    ({"message_coding": "difference", "bits": "32"}, "bits below 16 and no checkpoint"),
    ({"bits": "3"}, "bits"), ({"reassign_every": 1}, "greater"),
    ({"method": "full"}, "is an option of the method 'adaqp'"), ({"links": "nowhere.json"}, "links must be even, measured, or a JSON file"),
])  # fmt: skip
def test_what_has_no_meaning_is_refused(stored, options, message):
    def rank(comm):
        with pytest.raises(UsageError, match=message):
            trained(stored / "plain", comm, **options)

    on_threads(2, rank)


def test_links_are_read_and_measured(tmp_path):
    (tmp_path / "links.json").write_text(json.dumps({"theta": [[0, 2], [3, 0]], "gamma": [[0, 0.1], [0.2, 0]]}))
    (tmp_path / "short.json").write_text(json.dumps({"theta": [1], "gamma": [1]}))

    def rank(comm):
        links = links_of(str(tmp_path / "links.json"), comm)
        assert links.theta.tolist() == [[0, 2], [3, 0]]
        with pytest.raises(UsageError, match="must be 2 x 2"):
            links_of(str(tmp_path / "short.json"), comm)
        return links_of("measured", comm)

    first, second = on_threads(2, rank)
    assert (first.theta == second.theta).all()
    assert (first.theta[[0, 1], [1, 0]] > 0).all()


def test_measured_links_are_the_line_through_the_times_of_four_mib(monkeypatch):
    theta, gamma, sent = np.array([[0, 2, 5], [3, 0, 4], [1, 7, 0]]), np.array([[0, 0.5, 0.25], [0, 0, 1], [2, 0.125, 0]]), np.zeros((3, 3))

    def seconds(comm, peer, size):
        sent[comm.rank, peer] += size
        return (theta[comm.rank, peer] * size / 2**20 + gamma[comm.rank, peer]) / 1e3

    monkeypatch.setattr(widths, "_seconds", seconds)
    for links in on_threads(3, lambda comm: links_of("measured", comm)):
        np.testing.assert_allclose(links.theta, theta, rtol=1e-9)
        np.testing.assert_allclose(links.gamma, gamma, atol=1e-9)
    np.testing.assert_allclose(sent, 2**22 * (1 - np.eye(3)), rtol=0.01)


# ---- odd graphs


@pytest.mark.long
@pytest.mark.parametrize("bits", ["adaptive", "2", "16"])
def test_ranks_without_rows_and_empty_channels(stored, tmp_path, bits):
    assert len(of_threads(8, stored / "tiny", bits=bits, seeds="all")[0][0]) == 12
    graph = community_graph(n=60)
    apart = graph.adjacency.to_scipy().tolil()
    apart[:30, 30:] = 0  # rows of the first half see nothing of the second: the channels of one direction are empty
    adjacency = CSR.from_scipy(apart.tocsr()).with_values(None)
    directed = Graph(adjacency, features=graph.features, labels=graph.labels, num_classes=3, masks=graph.masks, name="d")
    store.save(directed.validate(), tmp_path / "d")
    losses = of_threads(2, tmp_path / "d", bits=bits)[0][0]
    assert losses[-1] < losses[0]


@pytest.mark.long
def test_the_command_line_over_mpi(stored, tmp_path):
    flags = {"method": "adaqp", "bits": "adaptive", "reassign-every": 3, "layers": 2, "epochs": 8, "hidden": 8, "partition": "random"}
    words = ["--quiet", *[str(word) for key, value in flags.items() for word in (f"--{key}", value)], "--json", str(tmp_path / "r")]
    ended = run_ranks(3, ["-m", "bulksample", "train", str(stored / "plain"), *words])
    assert ended.code == 0, ended
    report = json.loads((tmp_path / "r").read_text())
    assert (report["method"], report["bits"], report["assignments"]) == ("adaqp", "adaptive", 2)
    assert 2 <= report["mean_bits"] <= 8
