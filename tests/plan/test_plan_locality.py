"""Planned bytes of mini-batches from groups of near seeds, compared with those that real runs count, and shares counted by hand."""

import json

import numpy as np
import pytest
from communities import community_graph
from typer.testing import CliRunner

from bulksample import CSR, UsageError
from bulksample.cli.app import app
from bulksample.data import store
from bulksample.data.parts_writer import write_parts
from bulksample.distributed.comm.threads import on_threads
from bulksample.graph import Graph
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer
from bulksample.plan import PlanRequest, make_plan
from bulksample.plan.locality import sample_locality
from bulksample.plan.sizes import expected_sizes
from bulksample.plan.traffic import CandidateGrid, epoch_bytes

K = 4


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A store of four communities with shuffled ids, its parts by community, and the graph."""
    graph, place = community_graph(n=1600, classes=4, degree=12), tmp_path_factory.mktemp("planned")
    communities = np.where(graph.labels < 0, 0, graph.labels).astype(np.int32)
    store.save(graph, place / "graph")
    write_parts(place / "graph", place / "parts", communities, 4, "random")
    return place, graph


def request_of(graph, **options):
    sizes = {"vertices": graph.n, "edges": graph.adjacency.nnz, "feature_width": graph.num_features, "classes": graph.num_classes}
    given = {"seeds": int(graph.masks["train"].sum()), "fanouts": (4, 3), "batch_size": 16, "hidden": 8, "device": "cpu", "ranks": (4,)}
    return PlanRequest.of(**sizes, **given | options)


def counted(folder, p, **options):
    """The bytes of an epoch by kind."""

    def sent(epochs):
        config = TrainConfig.of(
            fanouts=(4, 3), batch_size=16, hidden=8, threads=1, evaluate="none", bulk_size=K, epochs=epochs, seed_locality=4, **options
        )
        return on_threads(p, lambda comm: make_trainer(config, folder, comm).run()["bytes_sent"])[0]

    start, run = sent(0), sent(1)
    return {kind: run[kind] - start[kind] for kind in ("topology", "features")}


@pytest.mark.parametrize("kind", ["graph", "parts"])
@pytest.mark.parametrize(
    ("p", "c", "topology"),
    [(4, 1, "replicated"), (2, 1, "replicated"), (4, 1, "partitioned"), pytest.param(4, 2, "partitioned", marks=pytest.mark.long)],
)
def test_bytes_are_those_that_a_run_counts(folders, kind, p, c, topology):
    place, graph = folders
    request = request_of(graph, ranks=(p,), seed_locality=4)
    found = sample_locality(request, place / kind)
    sizes = make_plan(request, locality=found).sizes
    grid = CandidateGrid(p, c, "partitioned" if topology == "partitioned" else "published")
    planned, real = epoch_bytes(request, sizes, grid, K), counted(place / kind, p, topology=topology, features="partitioned", replication=c)
    assert planned.features == pytest.approx(real["features"], rel=0.01)  # an epoch, all sampled
    assert planned.topology == pytest.approx(real["topology"], rel=0.1)
    without = epoch_bytes(request_of(graph, ranks=(p,)), expected_sizes(request_of(graph, ranks=(p,))), grid, K)
    assert (planned.features < 0.75 * without.features) == (kind == "parts"), "only parts by community are local"


def test_shares_are_those_of_a_count_by_hand(tmp_path):
    """A ring of eight vertices in order, all neighbors, one seed a mini-batch: v draws from v + 1, which every other row of two holds."""
    ring = Graph(CSR.from_edges(np.arange(8), (np.arange(8) + 1) % 8, (8, 8)), 1.0, np.zeros((8, 1), np.float32), None, 0, {}, {}, "ring")
    store.save(ring, tmp_path / "ring")
    request = PlanRequest.of(
        vertices=8, edges=8, feature_width=1, fanouts=(-1, -1), batch_size=1, ranks=(1, 2, 4), seed_locality=4, device="cpu"
    )
    found = sample_locality(request, tmp_path / "ring")
    assert (found.minibatches, found.edges, found.inputs) == (8, 3.0, 3.0)
    assert found.shares[4, 4] == pytest.approx((0, 4 / 16, 12 / 24))  # a seed; a seed and the next; and the one after it
    assert found.shares[2, 2] == pytest.approx((0, 2 / 16, 6 / 24))
    assert found.shares[4, 2] == found.shares[2, 2]
    assert found.shares[4, 1] == found.shares[1, 1] == (0, 0, 0)


def test_an_epoch_has_the_mini_batches_of_all_groups():
    request = PlanRequest.of(vertices=100, edges=400, feature_width=2, seeds=23, batch_size=3, seed_locality=4)
    assert request.minibatches == 4 * 2  # three groups of six and one of five


def test_what_cannot_be_planned_is_refused(folders):
    place, graph = folders
    with pytest.raises(UsageError, match="seed_locality 4 is planned by sampling the graph; use --from with a store or a folder of parts"):
        make_plan(request_of(graph, seed_locality=4))
    with pytest.raises(UsageError, match="seed_locality 4 does not fit steps of 3 mini-batches"):
        sample_locality(request_of(graph, seed_locality=4, ranks=(3,)), place / "graph")
    with pytest.raises(UsageError, match="seed_locality 5000 needs as many seeds"):
        sample_locality(request_of(graph, seed_locality=5000, ranks=(1,)), place / "graph")


def test_the_command_plans_from_a_folder_of_parts_and_refuses_sizes_alone(folders):
    place, _ = folders
    command = ["plan", "--from", str(place / "parts"), "--fanouts", "4,3", "--batch-size", "16", "--ranks", "4", "--device", "cpu"]
    near, far = (
        json.loads(CliRunner().invoke(app, [*command, *more, "--json", "-"]).stdout) for more in (["--seed-locality", "4"], [])
    )  # fmt: skip
    bytes_of = [{row["replication"]: row["bytes_sent"]["features"] for row in made["rows"]} for made in (near, far)]
    assert bytes_of[0][1] < 0.75 * bytes_of[1][1]
    assert "--seed-locality 4" in " ".join(near["explanation"])
    sizes = ["--vertices", "9", "--edges", "9", "--feature-width", "2"]
    for refused, message in (
        (["plan", *sizes, "--seed-locality", "4"], "use --from with a store or a folder of parts"),
        ([*command, "--seeds", "5", "--seed-locality", "4"], "got --seeds: leave it out"),
    ):
        with pytest.raises(UsageError, match=message):
            CliRunner().invoke(app, refused, catch_exceptions=False)
