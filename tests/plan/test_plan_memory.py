"""Expected memory, compared with arithmetic by hand and with real arrays; and its growth."""

import numpy as np
import pytest
import torch
from uniform import DEGREE, N, digraph, papers, request

from bulksample import LocalAdjacency, Selection, Stream, backends, samplers
from bulksample.loading.bulk_sizes import COPIES
from bulksample.loading.loader import BulkLoader
from bulksample.plan.memory import largest_bulk, rank_memory
from bulksample.plan.sizes import expected_sizes
from bulksample.plan.traffic import CandidateGrid

NODES, EDGES = 111_059_956, 1_615_685_872


def held(asked, grid, k=1):
    return rank_memory(asked, expected_sizes(asked), grid, k)


def test_papers100m_replicated_by_hand():
    found = held(papers(), CandidateGrid(128, 128, "replicated"), 10)
    assert found.graph == 8 * (NODES + 1) + 4 * EDGES  # 0.89 + 6.46 = 7.35 GB
    assert found.graph == pytest.approx(7.35e9, rel=1e-3)
    assert found.features == NODES * 128 * 4  # 56.9 GB
    assert found.vectors == 15 * NODES + 16 * 1_207_179  # labels 8, masks 3, degrees 4; 1.69 GB
    assert found.model == 16 * 285_356
    assert found.bulk == pytest.approx(2.5 * 10 * 9_167_160, rel=1e-5)  # 0.23 GB
    # the input layer averages features where they lie, 164,758 + 823,788 rows for 928,449 sources, and copies rows of its own: 0.08 GB
    assert found.buffers == pytest.approx(164_757.525 * 128 * 4, rel=1e-5)
    # layers, input first: 164,758 x (128 + 256), 15,920 x (256 + 256), 1,024 x (256 + 172); and twice 164,758 x 256 for gradients
    kept = 164_758 * 384 + 15_920 * 512 + 1024 * 428
    assert found.activations == pytest.approx(4 * (kept + 2 * 164_758 * 256), rel=1e-5)  # 0.62 GB
    # the second layer: n rows of 256, 1 GiB of them on arrival, and a 128th of 256 before, 256 sent, 2 x 256 after
    assert found.evaluation == 4 * NODES * (256 + (256 + 256 + 2 * 256) / 128) + 2**30  # 118 GB
    assert found.total == found.graph + found.features + found.vectors + found.model + found.evaluation


def test_papers100m_partitioned_by_hand():
    """p = 128, c = 16: an eighth of the rows."""
    found = held(papers(), CandidateGrid(128, 16, "partitioned"), 10)
    assert found.graph == 8 * (NODES / 8 + 1) + 4 * EDGES / 8  # 0.92 GB
    assert found.features == NODES * 128 * 4 / 8  # 7.11 GB
    assert found.vectors == 19 * NODES / 8 + 16 * 1_207_179
    # the largest hop: 4 bytes and 8 for each of 10 minibatches to 7 ranks, 7/8 of (4 a row and 4 * 5 in answer); sent and received
    sampling = 2 * (7 * 84 + 10 * 7 / 8 * 24 * 164_757.525)
    requests = 10 * 928_449 * (9 + 4 * 7 / 8)  # of a bulk
    assert found.buffers == pytest.approx(sampling + requests + 928_449 * 128 * (4 + 4 * (1 + 2 * 7 / 8)), rel=1e-5)
    assert found.evaluation == 4 * NODES * (256 / 8 + (256 + 256 + 2 * 256) / 128) + 2**30  # 19 GB


@pytest.mark.parametrize(("fanouts", "width"), [((15, 10), 0), ((40, 10), 1), ((300, 10), 2), ((40, 300), 2), ((-1, 10), 4)])
def test_counts_of_rows_where_answers_are_not_padded(fanouts, width):
    grid = CandidateGrid(128, 16, "partitioned")
    assert held(papers(fanouts=fanouts), grid).graph - held(papers(), grid).graph == width * NODES
    by_rows = papers(fanouts=fanouts, exchange="rows")
    assert held(by_rows, grid).graph == held(papers(), grid).graph


@pytest.mark.parametrize(("codec", "row"), [("bf16", 256), ("int8", 132), ("int4", 68), ("int2", 36)])
def test_rows_in_buffers_have_the_size_of_their_codec(codec, row):
    buffers = [held(papers(feature_codec=name), CandidateGrid(128, 16, "partitioned"), 10).buffers for name in (codec, "fp32")]
    assert buffers[1] - buffers[0] == pytest.approx(928_449 * (1 + 2 * 7 / 8) * (4 * 128 - row), rel=1e-5)


def test_without_evaluation_training_is_the_peak():
    found = held(papers(evaluate="none"), CandidateGrid(128, 128, "replicated"), 10)
    assert found.evaluation == 0
    gigabytes = 7.351 + 56.863 + 1.685 + 0.005 + 0.229 + 0.084 + 0.625  # A, H, vectors, model, bulk, own rows, activations
    assert found.total == pytest.approx(1e9 * gigabytes, rel=1e-4)


def test_a_block_row_has_the_predicted_size():
    asked = request()
    assert held(asked, CandidateGrid(1, 1, "replicated")).graph == digraph().indptr.nbytes + digraph().indices.nbytes
    rows = N // 4
    block = np.arange(rows + 1, dtype=np.int64).nbytes + 4 * rows * DEGREE
    assert held(asked, CandidateGrid(8, 2, "partitioned")).graph == block


def test_bulks_take_what_the_loader_predicts():
    """The loader predicts from the first mini-batch, the plan from the sizes of the graph."""
    asked = request(batch_size=64)
    adjacency = LocalAdjacency(digraph(), backends.make("auto", 1))
    made = BulkLoader(adjacency, samplers.make("sage", asked.fanouts), np.arange(6400), batch_size=64, shuffle=False, memory_budget=2**22)
    assert made.predicted_bytes == pytest.approx(held(asked, CandidateGrid(1, 1, "replicated"), made.bulk_size).bulk, rel=0.03)


@pytest.mark.parametrize(
    ("features", "hidden", "classes", "fanouts"),
    [
        (128, 256, 172, (8, 5, 3)),
        (10, 64, 5, (8, 5)),
        (512, 64, 5, (8, 5, 3)),
    ],
)
def test_what_torch_keeps_for_the_backward_pass_is_counted(features, hidden, classes, fanouts):
    from bulksample.nn.dropout import PassNames
    from bulksample.nn.model import Gnn

    asked = request(feature_width=features, hidden=hidden, classes=classes, fanouts=fanouts, batch_size=64)
    q = Selection.of([np.arange(64)], N)
    (minibatch,) = samplers.make("sage", fanouts).sample_bulk(LocalAdjacency(digraph(), backends.make("auto", 1)), q, Stream(3))
    model, x = Gnn("sage", asked.widths, dropout=0.5), torch.randn(len(minibatch.vertices), features)
    assert sum(parameter.numel() for parameter in model.parameters()) == asked.parameters
    given = {tensor.untyped_storage().data_ptr() for tensor in (x, *model.parameters())}
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in given:
            kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(minibatch.blocks, x, torch.full((len(x),), float(DEGREE)), PassNames.of(minibatch))
    gradients = 8 * max(block.num_destinations * width for block, width in zip(minibatch.blocks, asked.widths[1:], strict=True))
    expected = held(asked, CandidateGrid(1, 1, "replicated")).activations - gradients
    assert sum(storage.nbytes() for storage in kept.values()) == pytest.approx(expected, rel=0.1)  # a narrow layer keeps no means


def test_memory_falls_with_p_and_grows_with_c():
    asked = papers()
    by_p = [held(asked, CandidateGrid(p, 2, "partitioned")).total for p in (4, 8, 16, 64)]
    assert by_p == sorted(by_p, reverse=True)
    by_c = [held(asked, CandidateGrid(64, c, "partitioned")).total for c in (1, 2, 4, 8, 32)]
    assert by_c == sorted(by_c)
    by_k = [held(papers(evaluate="none"), CandidateGrid(64, 4, "partitioned"), k).total for k in (1, 2, 8)]
    assert by_k == sorted(by_k)
    assert len(set(by_k)) == 3


def test_weights_and_layer_wise_matrices_are_counted():
    """Layer-wise samplers hold a column block beside the block row, the squares of both, and row sums."""
    node_wise, layer_wise = (held(request(sampler=sampler), CandidateGrid(4, 1, "partitioned")).graph for sampler in ("sage", "ladies"))
    m, rows = N * DEGREE / 4, N / 4
    assert layer_wise - node_wise == (8 * (N + 1) + 12 * m) + 8 * m + 8 * rows
    rows_policy = held(request(sampler="ladies", exchange="rows"), CandidateGrid(4, 1, "partitioned")).graph
    assert layer_wise - rows_policy == 8 * (N + 1) + 12 * m
    static = held(request(sampler="fastgcn"), CandidateGrid(4, 1, "partitioned")).graph
    assert static - layer_wise == 12 * N
    weighted = held(request(weighted=True), CandidateGrid(4, 1, "partitioned")).graph
    assert weighted - node_wise == 8 * m


def test_the_largest_bulk_is_the_largest_that_fits():
    asked = papers(evaluate="none")
    sizes, grid = expected_sizes(asked), CandidateGrid(4, 4, "replicated")
    k = largest_bulk(asked, sizes, grid, 70e9)
    assert rank_memory(asked, sizes, grid, k).total <= 70e9 < rank_memory(asked, sizes, grid, k + 1).total
    assert largest_bulk(asked, sizes, grid, 1e15) == 295  # an epoch: 1,179 minibatches on 4 ranks
    assert largest_bulk(asked, sizes, grid, 60e9) == 0


def test_the_loader_keeps_as_many_copies_as_the_plan_counts():
    asked = request()
    sizes = expected_sizes(asked)
    assert rank_memory(asked, sizes, CandidateGrid(1, 1, "replicated"), 3).bulk == COPIES * 3 * sizes.nbytes


def test_evaluation_within_a_memory_is_streamed():
    """Two shards of 256 numbers a row and the rows sent between them, and a chunk; in files where that is too much."""
    grid, shards = CandidateGrid(128, 1, "partitioned"), 4 * NODES * 3 * 256 / 128
    within = held(papers(eval_memory="4GB"), grid, 10).evaluation
    assert shards < within < shards + 2**26
    assert held(papers(eval_memory="2GB"), grid, 10).evaluation < 2**26
    gathered = held(papers(), grid, 10).evaluation
    assert held(papers(eval_memory=int(gathered)), grid, 10).evaluation == gathered
