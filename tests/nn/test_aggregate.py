"""Sparse products and attention against their dense definitions, forward and backward."""

import numpy as np
import pytest
import torch
from engines import engine
from oracles import dense_block

from bulksample import Block
from bulksample.nn import aggregate as module
from bulksample.nn.aggregate import SparseRows, aggregate, multiply, own_and_mean, product
from bulksample.nn.segments import segment_softmax, weighted_sum, with_self_edges


@pytest.fixture(params=["native", "reference"])
def kernel(request, monkeypatch):
    monkeypatch.setattr(module, "on_host", lambda threads: engine(f"{request.param} {threads}"))


def random_block(destinations, sources, seed=0, weighted=False, repeat=False):
    """Rows of 0 to 5 edges; some rows are empty."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 6, destinations) * (rng.random(destinations) > 0.2)
    indices = [np.sort(rng.choice(sources, c, replace=repeat or c > sources)) for c in counts]
    indptr = np.concatenate([[0], np.cumsum(counts)])
    weights = rng.random(indptr[-1]).astype(np.float32) if weighted else None
    return Block(indptr, np.concatenate([*indices, np.empty(0)]).astype(np.int32), weights, sources)


BLOCKS = [(0, 0), (0, 3), (1, 1), (5, 9), (40, 40), (30, 70)]


@pytest.mark.parametrize("shape", BLOCKS)
@pytest.mark.parametrize("weighted", [False, True])
def test_aggregate_is_the_dense_product(shape, weighted, kernel):
    block = random_block(*shape, weighted=weighted, repeat=True)
    x = torch.randn(shape[1], 6, requires_grad=True)
    y = aggregate(block, x)
    dense = torch.from_numpy(dense_block(block)).float()
    torch.testing.assert_close(y, dense @ x)
    g = torch.randn_like(y)
    (grad,) = torch.autograd.grad(y, x, g)
    torch.testing.assert_close(grad, dense.T @ g)


def test_sums_count_every_edge(kernel):
    block = random_block(20, 30)
    ones = torch.ones(30, 2)
    assert (aggregate(block, ones, mean=False)[:, 0].numpy() == np.diff(block.indptr)).all()


def test_an_empty_mean_is_zero_and_has_no_gradient(kernel):
    block = Block(np.zeros(4), np.empty(0), None, 5)
    x = torch.randn(5, 3, requires_grad=True)
    y = aggregate(block, x)
    y.sum().backward()
    assert not y.any()
    assert not x.grad.any()


def test_gradients_agree_with_finite_differences():
    block = random_block(6, 9, weighted=True)
    x = torch.randn(9, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: aggregate(block, x), (x,))
    assert torch.autograd.gradcheck(lambda x: aggregate(random_block(6, 9), x), (x,))


def test_slices_of_rows_are_views_of_the_same_matrix(kernel):
    block = random_block(30, 40, weighted=True)
    whole = SparseRows(block.indptr, block.indices, block.weights, 40)
    x = torch.randn(40, 5)
    torch.testing.assert_close(product(whole[7:20], x), product(whole, x)[7:20])
    g = torch.randn(13, 5)
    torch.testing.assert_close(whole[7:20].transposed.times(g), torch.from_numpy(dense_block(block)[7:20].T).float() @ g)


def test_a_matrix_is_transposed_once_also_for_a_slice_of_all_its_rows(kernel, monkeypatch):
    block, made = random_block(30, 40, weighted=True), []
    whole = SparseRows(block.indptr, block.indices, block.weights, 40)
    used = type(module.on_host(1))
    original = used.transpose
    monkeypatch.setattr(used, "transpose", lambda *arrays: made.append(arrays) or original(*arrays))
    weights = [torch.randn(40, 5, requires_grad=True) for _ in range(2)]
    rows = torch.randn(30, 5)
    (product(whole, weights[0]) * rows + product(whole[:30], weights[1]) * rows).sum().backward()
    expected = torch.from_numpy(dense_block(block).T).float() @ rows
    for weight in weights:
        torch.testing.assert_close(weight.grad, expected)
    assert len(made) == 1


def test_sparse_features_multiply_as_dense_ones(kernel):
    block = random_block(30, 12, weighted=True)
    rows = SparseRows(block.indptr, block.indices, block.weights, 12)
    weight = torch.randn(12, 4, requires_grad=True)
    dense = torch.from_numpy(dense_block(block)).float()
    torch.testing.assert_close(multiply(rows, weight), dense @ weight)
    g = torch.randn(30, 4)
    (grad,) = torch.autograd.grad(multiply(rows, weight), weight, g)
    torch.testing.assert_close(grad, dense.T @ g)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", BLOCKS)
def test_own_rows_and_means_have_the_summed_gradient(shape, weighted, kernel):
    block = random_block(*shape, weighted=weighted)
    x = torch.randn(shape[1], 5, requires_grad=True)
    got, expected = own_and_mean(block, x), (x[: shape[0]], aggregate(block, x))
    for a, b in zip(got, expected, strict=True):
        assert torch.equal(a, b)
    weights = [torch.randn_like(part) for part in expected]
    torch.testing.assert_close(*[torch.autograd.grad(pair, x, weights)[0] for pair in (got, expected)])


def test_products_repeat_to_the_bit(kernel):
    block = random_block(500, 400, weighted=True)
    x = torch.randn(400, 33)
    first = aggregate(block, x)
    torch.set_num_threads(2)
    second = aggregate(block, x)
    torch.set_num_threads(1)
    assert (first == second).all()


def dense_attention(block, scores, z):
    """Compute attention with a softmax over each row, entry by entry."""
    out = torch.zeros(block.num_destinations, *z.shape[1:], dtype=z.dtype)
    for row in range(block.num_destinations):
        edges = slice(int(block.indptr[row]), int(block.indptr[row + 1]))
        alpha = torch.softmax(scores[edges], 0)
        out[row] = (alpha[:, :, None] * z[torch.from_numpy(block.indices[edges].astype(np.int64))]).sum(0)
    return out + 0 * (scores.sum() + z.sum())  # keeps a gradient if there are no rows


@pytest.mark.parametrize("shape", BLOCKS)
def test_attention_is_the_dense_softmax(shape, kernel, monkeypatch):
    monkeypatch.setattr("bulksample.nn.segments._CHUNK_OF_SUMS", 16)  # several chunks of edges in the gradient
    block = random_block(*shape)
    pattern = SparseRows(block.indptr, block.indices, None, block.num_sources)
    scores = (30 * torch.randn(block.num_edges, 2)).requires_grad_()
    z = torch.randn(shape[1], 2, 3, requires_grad=True)
    alpha = segment_softmax(pattern, scores)
    got, expected = weighted_sum(pattern, alpha, z), dense_attention(block, scores, z)
    torch.testing.assert_close(got, expected)
    g = torch.randn_like(got)
    for a, b in zip(torch.autograd.grad(got, (scores, z), g), torch.autograd.grad(expected, (scores, z), g), strict=True):
        torch.testing.assert_close(a, b)


def test_self_edges_come_first_in_their_rows():
    block = random_block(6, 9)
    own = np.array([8, 7, 6, 5, 4, 3])
    pattern, in_block = with_self_edges(block.indptr, block.indices, own, 9)
    assert pattern.indices[in_block].tolist() == block.indices.tolist()
    assert pattern.indices[pattern.indptr[:-1]].tolist() == own.tolist()
    assert pattern.degrees.tolist() == (np.diff(block.indptr) + 1).tolist()
