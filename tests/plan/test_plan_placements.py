"""Placements of topology and features: memory, bytes and choice, by hand and beside bytes that ranks sent."""

from itertools import chain

import numpy as np
import pytest
from oracles.fetches import share_between_machines
from uniform import DEGREE, N, digraph, papers, request

import bulksample as bs
from bulksample import Graph
from bulksample.data import store
from bulksample.distributed.comm.machines import VARIABLE
from bulksample.distributed.comm.threads import on_threads
from bulksample.errors import UsageError
from bulksample.plan import make_plan
from bulksample.plan.choice import placements
from bulksample.plan.explain import as_json, explain
from bulksample.plan.memory import host_bytes, rank_memory
from bulksample.plan.sizes import expected_sizes
from bulksample.plan.traffic import CandidateGrid, bytes_between_machines, epoch_bytes

ROWS = 111_059_956 * 128 * 4  # bytes of the features of papers100M
PROCESS = 172_000_000  # bytes of Python, torch and the package


def cluster(**changes):
    """Sixteen machines of eight devices; edges both ways."""
    both = {"ranks": (128,), "devices_per_node": 8, "edges": 3_231_371_744}
    return papers(**(both | changes))


def test_every_placement_is_compared_once_and_options_leave_others_out():
    rows = [(grids[0].topology, grids[0].placed) for grids in placements(cluster(), 128)]
    assert rows == [(a, b) for a in ("replicated", "partitioned") for b in ("replicated", "partitioned", "machine", "host")]
    assert [grid.replication for grid in next(placements(cluster(topology="partitioned", features="host"), 8))] == [1, 2, 4]
    ((one,),) = placements(cluster(topology="replicated", features="partitioned", feature_replication=16), 128)
    assert (one.replication, one.order) == (16, "columns")


@pytest.mark.parametrize(("placed", "on_device", "on_host"), [
    ("replicated", ROWS, 0), ("machine", ROWS / 8, 0), ("host", 0, ROWS), ("partitioned", ROWS / 8, 0),
])  # fmt: skip
def test_features_of_papers100m_on_16_machines_of_8(placed, on_device, on_host):
    """56.9 GB, 7.1 GB a device or on the host, and block rows with c = 16."""
    asked = cluster()
    grid = CandidateGrid(128, 16, "published") if placed == "partitioned" else CandidateGrid(128, 128, "replicated", placed)
    assert rank_memory(asked, expected_sizes(asked), grid, 1).features == on_device
    assert host_bytes(asked, expected_sizes(asked), grid, 1) == on_host + 8 * PROCESS


def test_buffers_of_exchanges_through_the_host_are_in_its_memory():
    """Twice the ids and picks of the largest hop, and for each input row what is sent, received and in order: k enters the first alone.

    The requests of a bulk stay on the device.
    """
    sizes, grid = expected_sizes(cluster()), CandidateGrid(128, 1, "partitioned")
    for k in (1, 4):
        held = rank_memory(cluster(), sizes, grid, k).buffers
        staged = [host_bytes(cluster(device_comm=name), sizes, grid, k) for name in ("nccl", "host")]
        requests = k * sizes.inputs * (9 + 4 * 127 / 128)
        assert staged == [8 * PROCESS, pytest.approx(8 * (PROCESS + held - requests))]


def test_ranks_without_devices_share_what_their_machine_holds():
    asked = cluster(device="cpu", network="perlmutter")
    for placed in ("host", "machine"):
        grid = CandidateGrid(128, 128, "replicated", placed)
        assert rank_memory(asked, expected_sizes(asked), grid, 1).features == ROWS / 8
        assert epoch_bytes(asked, expected_sizes(asked), grid, 1).features == 0
        held = rank_memory(asked, expected_sizes(asked), grid, 3).total
        assert host_bytes(asked, expected_sizes(asked), grid, 3) == pytest.approx(8 * (PROCESS + held))


@pytest.mark.parametrize(("order", "c", "share"), [
    ("rows", 1, 0.9375), ("rows", 4, 0.9375), ("rows", 16, 0.875), ("columns", 4, 0.75), ("columns", 8, 0.5), ("columns", 16, 0.0),
])  # fmt: skip
def test_the_share_of_features_that_leaves_a_machine(order, c, share):
    """U rows of f v bytes and their ids a mini-batch, and the all-reduce, of which 120 of 127 parts leave."""
    asked = cluster()
    sizes, steps = expected_sizes(asked), -(-asked.minibatches // 128)
    found = bytes_between_machines(asked, sizes, CandidateGrid(128, c, "published", order=order), 1)
    gradients = steps * 2 * 127 * 4 * (asked.parameters + 3) * 120 / 127
    assert found - gradients == pytest.approx(asked.minibatches * sizes.inputs * (512 + 4) * share)
    assert share_between_machines(128, 8, c, order) == share


@pytest.mark.parametrize("placed", ["machine", "host"])
def test_a_copy_on_each_machine_sends_only_gradients_to_others(placed):
    asked = cluster()
    sizes, grid = expected_sizes(asked), CandidateGrid(128, 128, "replicated", placed)
    assert bytes_between_machines(asked, sizes, grid, 1) == pytest.approx(epoch_bytes(asked, sizes, grid, 1).gradients * 120 / 127)
    inside = asked.minibatches * sizes.inputs * 512 * 7 / 8
    assert epoch_bytes(asked, sizes, grid, 1).features == pytest.approx(inside if placed == "machine" else 0)


@pytest.mark.parametrize(("machines", "c", "order"), [("2,2", 1, "rows"), ("2,2", 2, "columns"), ("2,2", 2, "rows")])
def test_predicted_bytes_between_machines_are_those_that_ranks_send(tmp_path, monkeypatch, machines, c, order):
    monkeypatch.setenv(VARIABLE, machines)
    n, width, batch = N // 10, 6, 100
    adjacency = digraph().take(np.arange(n))
    adjacency = bs.CSR(adjacency.indptr, np.sort(adjacency.indices.reshape(n, -1) % n, axis=1).reshape(-1), None, (n, n))
    keep = np.append(True, (adjacency.indices[1:] != adjacency.indices[:-1]) | (np.arange(1, adjacency.nnz) % DEGREE == 0))
    store.save(Graph(adjacency.keep(keep), features=np.ones((n, width), np.float32)), tmp_path / "g")

    def rank(comm):
        graph = bs.load(tmp_path / "g", world=comm, topology="replicated", replication=c, grid_order=order)
        loader = bs.Loader(graph, sampler="sage", fanouts=[3, 2], batch_size=batch, seeds="all", bulk_size=1, threads=1)
        before = dict(comm.between_machines)
        for batch_ in loader:
            assert batch_.x.shape[1] == width
        return sum(comm.between_machines[kind] - before[kind] for kind in ("features", "topology"))

    asked = request(
        vertices=n, edges=int(keep.sum()), feature_width=width, fanouts=(3, 2), batch_size=batch, ranks=(4,), devices_per_node=2,
        device="cpu",
    )  # fmt: skip
    sizes = expected_sizes(asked)
    gradients = -(-asked.minibatches // 4) * 2 * 3 * 4 * (asked.parameters + 3) * 2 / 3
    foreseen = bytes_between_machines(asked, sizes, CandidateGrid(4, c, "published", order=order), 1) - gradients
    assert sum(on_threads(4, rank)) == pytest.approx(foreseen, rel=0.03, abs=1)
    assert (foreseen < 1) == (order == "columns")


@pytest.mark.parametrize(
    ("options", "features", "way"),
    [
        ({}, "replicated", "fused"), ({"model": "gcn"}, "replicated", "fused"), ({"sampler": "ladies"}, "replicated", "gathered"),
        ({}, "machine", "gathered"), ({}, "host", "gathered"), ({}, "partitioned", "gathered"), ({"device": "cpu"}, "host", "fused"),
        ({"vertices": 20_000, "edges": 600_000, "seeds": 20_000}, "replicated", "gathered"),
    ],
)  # fmt: skip
def test_the_plan_says_how_the_input_layer_reads(options, features, way):
    """Node-wise samples are averaged in place, where each rank can read all rows, and while few of them are read twice."""
    plan = make_plan(cluster(features=features, topology="replicated", evaluate="none", device_memory=10**12, **options))
    (best,) = [row for row in as_json(plan)["placements"] if row["ranks"] == 128 and row["chosen"]]
    assert best["input_layer"] == way
    said = {"fused": "Its input layer is fused: it averages features where they lie", "gathered": "Its input layer gathers"}
    assert said[way] in " ".join(explain(plan))


def test_the_fastest_placement_that_fits_is_named_with_its_options():
    plan = make_plan(cluster(features="machine", topology="replicated"))
    best = plan.best_placement(128)
    assert (best.grid.topology, best.grid.placed) == ("replicated", "machine")
    assert "train --topology replicated --features machine is the fastest that fits" in " ".join(explain(plan))
    everywhere = make_plan(cluster())
    fitting = [row for row in everywhere.placements[128] if row.fits]
    assert everywhere.best_placement(128).seconds.epoch == min(row.seconds.epoch for row in fitting)
    shown = as_json(everywhere)["placements"]
    assert [row["chosen"] for row in shown].count(True) == 1
    assert {(row["topology"], row["features"]) for row in shown} == {(g[0].topology, g[0].placed) for g in placements(cluster(), 128)}


def test_a_machine_with_too_little_memory_has_no_copy_on_its_host():
    few, many = (make_plan(cluster(features="host", host_memory=size)) for size in ("58GB", "59GB"))
    assert few.best_placement(128) is None
    assert many.best_placement(128).host_bytes == ROWS + 8 * PROCESS
    assert not any("Of all placements" in text for text in chain(explain(few)))


@pytest.mark.parametrize(("size", "fits"), [("1.37GB", False), ("1.38GB", True)])
def test_a_machine_that_cannot_hold_its_processes_is_refused(size, fits):
    """Eight processes of 172 MB take 1.376 GB."""
    asked = cluster(host_memory=size)
    if fits:
        assert make_plan(asked).chosen
    else:
        with pytest.raises(UsageError, match=r"nothing fits into 1\.37 GB of a machine: 8 ranks of one take 1\.38 GB; give more"):
            make_plan(asked)
