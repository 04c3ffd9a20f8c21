"""Attention and pooling on a device equal those of the host: values, gradients, rows without edges, ties."""

import numpy as np
import pytest
import torch
from emulation.card import emulated_card
from emulation.host import compiler
from zoo import random_matrix

from bulksample.graph.minibatch import Block
from bulksample.nn.segments import attention_pattern, segment_max
from bulksample.training.cuda import device_rows

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no g++")


def blocks(weighted=False):
    """Return a block with some empty rows, on the host and on the device."""
    matrix = random_matrix(60, 150, 3)
    weights = np.random.default_rng(1).random(matrix.nnz).astype(np.float32) if weighted else None
    block = Block(matrix.indptr[:41], matrix.indices[: matrix.indptr[40]], None if weights is None else weights[: matrix.indptr[40]], 60)
    assert (np.diff(block.indptr) == 0).any()
    return block, device_rows.block_on_device(emulated_card(), block)


@pytest.mark.parametrize("weighted", [False, True])
def test_self_edges_come_first_as_on_the_host(weighted):
    block, there = blocks(weighted)
    degrees = torch.arange(40) + 1.0
    (pattern, multiplicity), (own, own_multiplicity) = (attention_pattern(one, slice(3, 43), degrees) for one in (block, there))
    assert own.indptr.tolist() == pattern.indptr.tolist()
    assert own.indices.tolist() == pattern.indices.tolist()
    torch.testing.assert_close(own_multiplicity, multiplicity)


@pytest.mark.parametrize("chunk", [1, 2**28])
def test_the_first_maximum_gets_the_gradient(monkeypatch, chunk):
    monkeypatch.setattr(device_rows, "_CHUNK_NUMBERS", chunk)
    block, there = blocks()
    x = torch.randint(-3, 3, (60, 7), generator=torch.Generator().manual_seed(1)).float()  # many ties, and maxima below 0
    found = []
    for own in (block, there):
        sent = x.clone().requires_grad_()
        largest = segment_max(own, sent)
        (largest * (torch.arange(7) + 1.0)).sum().backward()
        found.append((largest.detach(), sent.grad))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


def test_rows_from_the_middle_begin_at_zero():
    rows = device_rows.DeviceRows(None, torch.tensor([0, 2, 3, 6]), torch.arange(6), torch.arange(6.0), 6)[1:3]
    assert [part.tolist() for part in (rows.indptr, rows.indices, rows.weights)] == [[0, 1, 4], [2, 3, 4, 5], [2, 3, 4, 5]]
