"""Digests see every array, and selections keep their order."""

import dataclasses

import numpy as np
import pytest

from bulksample import Block, MiniBatch, Selection, UsageError


def minibatch(**change):
    block = Block(np.array([0, 2, 3]), np.array([2, 3, 0]), np.array([0.5, 0.5, 1.0]), 4)
    arrays = {"seeds": np.array([9, 8]), "seed_rows": np.array([0, 1]), "vertices": np.array([9, 8, 1, 0])}
    return MiniBatch.plain(**{"id": 3, "epoch": 1, **arrays, "blocks": (block,), **change})


def changed_block(**change):
    return {"blocks": (dataclasses.replace(minibatch().blocks[0], **change),)}


@pytest.mark.parametrize(
    "change",
    [
        {"id": 4},
        {"epoch": 0},
        {"seeds": np.array([8, 9])},
        {"seed_rows": np.array([1, 0])},
        {"vertices": np.array([9, 8, 1, 2])},
        {"blocks": ()},
        {"blocks": minibatch().blocks * 2},
        changed_block(indptr=np.array([0, 1, 3])),
        changed_block(indices=np.array([2, 3, 1])),
        changed_block(weights=None),
        changed_block(weights=np.array([0.5, 0.5, -1.0])),
        changed_block(num_sources=5),
    ],
)
def test_the_digest_sees_every_change(change):
    assert minibatch(**change).digest() != minibatch().digest()


def test_equal_minibatches_have_equal_digests_whatever_their_memory_looks_like():
    strided = np.array([[9, 0], [8, 0], [1, 0], [0, 0]])[:, 0]
    assert minibatch(vertices=strided).digest() == minibatch(vertices=strided.astype(np.int64)).digest() == minibatch().digest()


def test_arrays_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        minibatch().vertices[0] = 1


def test_each_draw_is_counted_once():
    twice = minibatch(blocks=minibatch().blocks * 2)
    assert twice.num_edges == 6
    assert dataclasses.replace(twice, nested=True).num_edges == 3
    assert twice.nbytes() > dataclasses.replace(twice, nested=True).nbytes()


def test_rows_of_an_array_are_lists_of_vertices():
    q = Selection.of(np.array([[4, 1], [0, 2]]), 6)
    assert [q.part(j).tolist() for j in range(len(q))] == [[4, 1], [0, 2]]


def test_a_selection_is_a_matrix_with_a_row_for_each_minibatch():
    q = Selection.of([[4, 1], [], [2]], 6, np.array([10, 11, 12]))
    dense = q.per_minibatch(np.array([7, 8, 9])).validate().to_scipy().toarray()
    assert dense.tolist() == [[0, 8, 0, 0, 7, 0], [0] * 6, [0, 0, 9, 0, 0, 0]]


def test_what_was_added_is_what_follows_the_prefix():
    earlier, later = Selection.of([[4, 1], [], [2]], 6), Selection.of([[4, 1, 0, 5], [3], [2]], 6)
    added = later.added_since(earlier)
    assert [added.part(j).tolist() for j in range(3)] == [[0, 5], [3], []]


@pytest.mark.parametrize("ids", [[-1], [2**32]])
def test_minibatch_ids_are_32_bits(ids):
    with pytest.raises(UsageError, match="mini-batch ids"):
        Selection.of([[1]], 3, np.array(ids))


def test_pointers_must_fit():
    with pytest.raises(UsageError, match="needs 2 pointers"):
        Selection(np.zeros(1), np.array([0, 2]), np.zeros(3), 5)
