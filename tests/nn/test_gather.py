"""Gathered rows are exact for every storage dtype, and memory is reused only when no array refers to it."""

import numpy as np
import pytest
import torch
from communities import community_graph

from bulksample import UsageError
from bulksample.distributed.comm.machines import divide_threads
from bulksample.distributed.matrix.codec import CODECS
from bulksample.nn.gather import RowPool, gather_rows
from bulksample.views.features import Features


def every_half():
    """Return all 2**16 float16 values, NaN replaced by 1, in rows of 16."""
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    return np.where(np.isnan(halves), np.float16(1), halves).reshape(-1, 16)


@pytest.mark.parametrize("width", [1, 3, 16, 257])
def test_gathered_rows_equal_numpy_indexing(backend, width):
    x = np.random.default_rng(0).standard_normal((50, width)).astype(np.float32)
    vertices = np.random.default_rng(1).integers(0, 50, 3000)
    scale = np.random.default_rng(2).random(50, dtype=np.float32)
    for held, exact in ((x, x), (x.astype(np.float16), x.astype(np.float16)), (CODECS["bf16"].encode(x), None)):
        exact = CODECS["bf16"].decode(held) if exact is None else exact.astype(np.float32)
        for x_held in (held, np.asfortranarray(held)):
            rows = gather_rows(x_held, vertices, backend=backend)
            assert rows.dtype == np.float32
            assert np.array_equal(rows, exact[vertices])
            scaled = gather_rows(x_held, vertices, scale, backend=backend)
            assert np.array_equal(scaled, exact[vertices] * scale[vertices][:, None])


def test_every_float16_converts_exactly(backend):
    x = every_half()
    assert np.array_equal(gather_rows(x, np.arange(len(x)), backend=backend).view(np.uint32), x.astype(np.float32).view(np.uint32))


def test_a_buffer_is_reused_once_no_array_refers_to_it():
    pool = RowPool()
    first = torch.from_numpy(pool.rows(10, 4))
    kept = first[3:5]
    second = pool.rows(8, 4)
    assert not np.shares_memory(first.numpy(), second)
    place = second.__array_interface__["data"][0]
    del second, first
    assert pool.rows(6, 4).__array_interface__["data"][0] == place  # `kept` still holds the other one
    del kept
    assert pool.nbytes() == 4 * (50 + 40)
    assert len({id(pool.rows(30, 4)) for _ in range(5)}) >= 1
    assert pool.nbytes() <= 4 * (150 + 50)


def test_rows_kept_by_autograd_are_not_overwritten():
    graph = community_graph()
    features, weight = Features(graph), torch.ones(graph.num_features, 2, requires_grad=True)
    x = features.fetch(np.arange(20))
    expected, loss = x.sum(0), (x @ weight).sum()
    del x
    for start in range(20, 80, 20):
        features.fetch(np.arange(start, start + 20))
    loss.backward()
    torch.testing.assert_close(weight.grad, expected[:, None].expand(-1, 2))


def test_background_gathering_gives_the_same_rows():
    graph = community_graph()
    now, ahead = Features(graph, "l2"), Features(graph, "l2", threads=1)
    asked = [np.arange(0, 30), np.arange(30, 31), np.arange(7, 99)]
    flights = [ahead.start(vertices) for vertices in asked]
    for vertices, flight in zip(asked, flights, strict=True):
        assert torch.equal(flight(), now.fetch(vertices))


@pytest.mark.parametrize("storage", ["fp16", "bf16"])
def test_half_precision_storage_takes_half_the_memory(storage):
    graph = community_graph()
    whole, half = Features(graph), Features(graph, storage=storage)
    assert half.nbytes() * 2 == whole.nbytes()
    torch.testing.assert_close(half.fetch(np.arange(50)), whole.fetch(np.arange(50)), rtol=2.0**-8, atol=0)


@pytest.mark.parametrize(
    ("threads", "asked", "expected"),
    [(1, None, (0, 0, 1)), (2, None, (0, 0, 2)), (4, None, (1, 0, 3)), (16, None, (2, 2, 12)), (2, 1, (1, 0, 1))],
)
def test_divided_threads_add_up(threads, asked, expected):
    division = divide_threads(threads, asked)
    assert division == expected
    assert sum(division) == threads


def test_a_thread_is_left_to_compute():
    with pytest.raises(UsageError, match="use at most 1"):
        divide_threads(2, 2)
    assert divide_threads(1, waits=True) == (1, 0, 1)
    assert divide_threads(4, 0, waits=True) == (0, 0, 4)
