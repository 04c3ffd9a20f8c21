"""The floor of a step: bytes by hand, of the formula and of each model's layers."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from communities import community_graph
from planted_relations import planted

import bulksample as bs
from bulksample.graph.minibatch import Block
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer
from bulksample.nn.aggregate import SparseRows
from bulksample.nn.decoders import LinkModel
from bulksample.nn.model import Gnn
from bulksample.nn.relational import RelationalGnn
from bulksample.training.step_floor import Moves, RowPass, RowSum, bytes_of, moves_of


def block(destinations, sources, *columns):
    """A block in which the first destination has edges from the columns."""
    indptr = np.array([0, *[len(columns)] * destinations], np.int64)
    return Block(indptr, np.array(columns, np.int32), None, sources)


FIRST, LAST = block(4, 9, 0, 5, 6, 6, 8), block(2, 4, 1, 3, 3)  # which read 4 sources by 5 entries, and 2 by 3
BATCH = SimpleNamespace(blocks=[FIRST, LAST], rows={})


def test_bytes_by_hand():
    sums = [
        RowSum(100, 30, 200, 5, gradient=False),
        RowSum(30, 10, 50, 8, gradient=True),
        RowSum(7, 3, 11, 2, gradient=True, weighted=True),
    ]
    assert bytes_of(sums, [RowPass(30, 8), RowPass(10, 4)], parameters=99) == {
        "inputs": 100 * 5 * 4 + 30 * 5 * 4,  # rows are read, sums written
        "epilogues": 30 * 8 * (4 + 4 + 4 + 4) + 10 * 4 * (4 + 4 + 4 + 4),  # forward reads, writes; backward reads, writes
        "aggregations": 30 * 8 * (4 + 4) + 10 * 8 * (4 + 4) + 7 * 2 * (4 + 4) + 3 * 2 * (4 + 4),
        "columns": 200 * 4 + 50 * (4 + 4) + 11 * (8 + 8),
        "optimizer": 99 * (4 * 4 + 3 * 4),
    }


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        # aggregates 5 numbers of features, which need no gradient; then 8, as 40 entries would not pay for two more rows of a product
        (Gnn("sage", [5, 8, 8]), Moves([RowSum(4, 4, 5, 5, False), RowSum(2, 2, 3, 8, True)], [RowPass(4, 8)])),
        # the last layer multiplies first: it aggregates 3 numbers
        (Gnn("gcn", [5, 8, 3]), Moves([RowSum(4, 4, 5, 5, False), RowSum(2, 2, 3, 3, True)], [RowPass(4, 8)])),
        # heads are concatenated, and what they aggregate has a gradient
        (Gnn("gat", [5, 8, 3], heads=2), Moves([RowSum(4, 4, 5, 8, True), RowSum(2, 2, 3, 3, True)], [RowPass(4, 8)])),
        # each source sends 512 activated numbers
        (Gnn("sage-pool", [5, 8, 3]), Moves(
            [RowSum(4, 4, 5, 512, True), RowSum(2, 2, 3, 512, True)], [RowPass(9, 512), RowPass(4, 8), RowPass(4, 512)])),
    ],
    ids=["sage", "gcn", "gat", "sage-pool"],
)  # fmt: skip
def test_a_model_moves_the_rows_of_its_layers(model, expected):
    assert moves_of(model, BATCH, torch.ones(9, 5)) == expected
    assert moves_of(LinkModel(model, "dot", 3), BATCH, torch.ones(9, 5)) == expected


def test_sparse_features_are_read_by_their_entries():
    x = SparseRows(np.arange(0, 19, 2), np.zeros(18, np.int32), np.ones(18, np.float32), 70)  # two entries in each of nine rows
    moved = moves_of(Gnn("sage", [70, 8, 8]), BATCH, x)
    assert moved.sums == [
        RowSum(70, 9, 18, 8, True, True), RowSum(70, 4, 8, 8, True, True),  # W_mean of all rows, W_self of the destinations
        RowSum(4, 4, 5, 8, True), RowSum(2, 2, 3, 8, True),
    ]  # fmt: skip


def test_a_module_that_is_not_ours_has_no_floor():
    assert moves_of(torch.nn.Linear(5, 3), BATCH, torch.ones(9, 5)) is None


@pytest.mark.parametrize("model", ["hetero-sage", "hetero-gat"])
def test_relations_move_the_rows_that_have_an_edge(model):
    graph = planted()
    options = {"model": model, "fanouts": (4, 3), "hidden": 8, "batch_size": 16, "threads": 1}
    trainer = make_trainer(TrainConfig.of(**options), graph)
    made = trainer.model
    assert isinstance(made, RelationalGnn)
    batch = next(iter(trainer.context.batches))
    moved = moves_of(made, batch.minibatch, batch.x)
    sums = []
    for layer, blocks in zip(made.layers, batch.minibatch.blocks, strict=True):
        width = min(layer.width_in, layer.width_out) if model == "hetero-sage" else layer.width_out
        for key in layer.relations:
            edges = blocks.relations[key]
            if edges.num_edges:
                sums.append(RowSum(len(set(edges.indices.tolist())), edges.num_destinations, edges.num_edges, width, True))
    assert moved.sums == sums
    learned = [kind for kind in made.types[0] if not graph.type(kind).num_features]
    looked_up = [RowPass(len(batch.minibatch.vertices[kind]), 8) for kind in learned]
    hidden = [RowPass(batch.minibatch.blocks[0].destinations[kind], 8) for kind in made.layers[0].destinations]
    assert looked_up
    assert moved.passes == looked_up + hidden


@pytest.mark.parametrize("input_layer", ["gathered", "fused"])
def test_the_floor_of_a_run_is_that_of_its_blocks_by_hand(input_layer):
    """A step an epoch on all neighbors, so blocks are sets that the test finds without a sampler."""
    graph = community_graph(width=5)
    seeds = np.flatnonzero(graph.masks["train"])
    options = {"hidden": 8, "batch_size": 1000, "epochs": 8, "threads": 1, "evaluate": "none", "input_layer": input_layer}
    report = bs.train(graph, fanouts=[1000, 1000], **options)["step"]
    matrix = graph.adjacency
    edges = [matrix.indices[matrix.indptr[v] : matrix.indptr[v + 1]] for v in range(graph.n)]
    to_seeds = np.concatenate([edges[v] for v in seeds])
    reached = np.union1d(seeds, to_seeds)
    to_reached = np.concatenate([edges[v] for v in reached])
    weights = (5 * 8 + 5 * 8 + 8) + (8 * 3 + 8 * 3 + 3)
    read, read_last = len(np.unique(to_reached)), len(np.unique(to_seeds))
    assert report["floor_bytes"] == (
        (4 * 5 * (read + len(reached)) + 4 * len(to_reached)) * (input_layer == "gathered")  # features, and sums of them, else fetched
        + 16 * 8 * len(reached)  # bias, relu and dropout of hidden rows
        + 8 * 3 * (read_last + len(seeds)) + 8 * len(to_seeds)  # the last layer multiplies first, so it sums 3 numbers
        + 28 * weights
    )  # fmt: skip
    first = 2 * len(reached) * 5 * 8  # own and mean rows, by W
    last = (len(reached) + len(seeds)) * 8 * 3  # mean rows of all, own rows of the seeds
    assert report["gflop"] * 1e9 == pytest.approx(
        2 * (2 * first + 3 * last), rel=1e-12
    )  # forward, and gradients of W; of rows but for features
    assert (report["steps"], report["watched_steps"]) == (3, 3)
