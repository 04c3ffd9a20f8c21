"""`Batch.pin_memory` and `Batch.to(device, non_blocking=True)` on an emulated GPU: it knows what was pinned, and counts copies.

The values expected are those of the batch of numpy arrays.
"""

import copy
import functools
import pickle
import weakref
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
import torch
from communities import community_graph
from test_shared_hetero_loader import columns
from torch.utils.data._utils.pin_memory import pin_memory

import bulksample as bs
from bulksample import UsageError
from bulksample.distributed.comm.threads import on_threads
from bulksample.interop.columns import TableRows

PLAIN = community_graph(n=200, weighted=True)
PLAIN = replace(PLAIN, edge_features=np.arange(2.0 * PLAIN.adjacency.nnz, dtype=np.float32).reshape(-1, 2))
BARE = replace(PLAIN, features=None, labels=None, masks={}, edge_features=None)
PAPERS = {"seeds": {"paper": np.arange(30), "venue": np.array([1, 6, 1])}, "batch_size": 9}
OPTIONS = {
    "sage": (PLAIN, {}),
    "nested": (PLAIN, {"frontier": "new"}),
    "ladies": (PLAIN, {"sampler": "ladies"}),
    "saint": (PLAIN, {"sampler": "saint", "coverage": 3}),
    "sparse": (community_graph(sparse=True), {}),
    "bare": (BARE, {}),
    "dicts": (PLAIN, {"as_dicts": True}),
    "typed": (columns("none"), PAPERS),
    "typed nested": (columns("none"), {**PAPERS, "frontier": "new"}),
}
HOST = torch.device("cpu")


def batch_of(kind, out="torch"):
    graph, options = OPTIONS[kind]
    return next(iter(bs.Loader(graph, **{"fanouts": [4, 3], "batch_size": 16, "seed": 5, "threads": 1, "out": out, **options})))


class Gpu:
    """Pinned memory, and copies to a device that are made at once: `copies` has each, as (source, device, non_blocking)."""

    def __init__(self):
        self.pinned, self.copies, self.kept = set(), [], []

    def has(self, tensor):
        return tensor.untyped_storage()._cdata in self.pinned  # empty ones have no address

    def pin(self, tensor):
        if self.has(tensor):
            return tensor
        self.kept.append(tensor.clone())  # so that the storage of no other tensor is taken for this one
        self.pinned.add(self.kept[-1].untyped_storage()._cdata)
        return self.kept[-1]


@pytest.fixture
def gpu(monkeypatch):
    made, to = Gpu(), torch.Tensor.to

    def moved(tensor, device, **options):
        if isinstance(device, torch.dtype) or torch.device(device).type != "cuda":
            return to(tensor, device, **options)
        made.copies.append((tensor, device, options.get("non_blocking", False)))
        return tensor.clone()

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: made.pin(tensor))
    monkeypatch.setattr(torch.Tensor, "to", moved)
    return made


@pytest.fixture(params=OPTIONS)
def kind(request):
    return request.param


NAMES = ("vertices", "seeds", "seed_rows", "seed_weights", "x", "y", "e_id", "edge_attr", "blocks")


def leaves(value, place=()):
    """The parts of a value by their places."""
    if isinstance(value, dict):
        return {where: leaf for key, part in value.items() for where, leaf in leaves(part, (*place, key)).items()}
    if isinstance(value, tuple | list):
        return {where: leaf for i, part in enumerate(value) for where, leaf in leaves(part, (*place, i)).items()}
    return {} if value is None else {place: value}


def tensors(batch):
    """Every tensor that a user reads of a batch, by place."""
    found = {}
    for name in NAMES:
        if name in NAMES[:4] or name == "blocks" or batch.has(name):
            for place, leaf in leaves(getattr(batch, name)).items():
                parts = [leaf] if name != "blocks" else [leaf.edge_index, *([] if leaf.weights is None else [leaf.weights])]
                found |= {(name, *place, i): part for i, part in enumerate(parts)}
    if batch.by_type:
        found |= {("edge_index_dict", key): edges for key, edges in batch.edge_index_dict.items()}
    return found


@functools.cache
def expected(kind):
    """The same by the batch of numpy arrays, whose integers become int64."""
    batch, found = batch_of(kind, "numpy"), {}
    for name in NAMES[:-1]:
        if name in NAMES[:4] or batch.has(name):
            found |= {(name, *place, 0): array for place, array in leaves(getattr(batch, name)).items()}
    for place, block in leaves(batch.blocks).items():
        ends = np.stack([block.indices.astype(int), np.repeat(np.arange(len(block.indptr) - 1), np.diff(block.indptr))])
        found |= {("blocks", *place, i): part for i, part in enumerate([ends, block.weights]) if part is not None}
        if batch.by_type and place[0] == 0:
            found["edge_index_dict", place[1]] = ends
    return {place: array.astype(np.int64) if array.dtype.kind == "i" else array for place, array in found.items()}


def assert_values(batch, kind):
    found, wanted = tensors(batch), expected(kind)
    assert found.keys() == wanted.keys()
    for place, array in wanted.items():
        assert found[place].numpy().dtype == array.dtype, place
        np.testing.assert_array_equal(found[place].numpy(), array, err_msg=str(place))


@pytest.mark.parametrize("out", ["torch", "numpy"])
def test_a_pinned_batch_has_all_values_in_pinned_memory(gpu, kind, out):
    batch = batch_of(kind, out)
    pinned = batch.pin_memory()
    assert_values(pinned, kind)
    assert all(gpu.has(tensor) for tensor in tensors(pinned).values())
    assert torch.device(pinned.device) == HOST
    assert (pinned.id, pinned.epoch, pinned.repeated, pinned.digest()) == (batch.id, batch.epoch, batch.repeated, batch.digest())
    if out == "torch":
        assert_values(batch, kind)
        assert not any(gpu.has(tensor) for tensor in tensors(batch).values())
    assert not gpu.copies


def test_what_is_pinned_is_not_copied_again(gpu, kind):
    pinned = batch_of(kind).pin_memory()
    before = len(gpu.kept)
    assert pinned.pin_memory() is pinned
    assert pinned.to("cpu") is pinned
    assert len(gpu.kept) == before
    again = copy.copy(pinned).pin_memory()  # the columns of the copy are pinned, its vertices and edges are not
    assert_values(again, kind)
    assert not pinned.has("x") or [x.data_ptr() for x in leaves(again.x).values()] == [x.data_ptr() for x in leaves(pinned.x).values()]


def test_features_are_read_once(gpu, kind, monkeypatch):
    own = batch_of(kind).own_and_mean() if kind != "bare" else ()
    pinned, _ = batch_of(kind).pin_memory(), expected(kind)

    def read(*_):
        raise AssertionError("read again")

    for column in ("x", "y", "located"):
        monkeypatch.setattr(TableRows, column, read)
    assert_values(pinned.to("cuda", non_blocking=True), kind)
    assert_values(pinned.to("cuda").to("cpu"), kind)
    assert_values(pickle.loads(pickle.dumps(pinned)), kind)
    if kind != "bare":
        here, there = leaves(own), leaves(pinned.own_and_mean())
        assert here.keys() == there.keys()
        assert all(torch.equal(here[place], there[place]) for place in here)
    for batch in (pinned, pinned.to("cuda", non_blocking=True)):
        data = batch.to_pyg()
        assert not batch.has("x") or all((data[place[0]] if place else data).x is x for place, x in leaves(batch.x).items())


@pytest.mark.parametrize("non_blocking", [True, False])
def test_a_pinned_batch_moves_its_tensors_at_once(gpu, kind, non_blocking):
    pinned = batch_of(kind).pin_memory()
    moved = pinned.to("cuda:1", non_blocking=non_blocking)
    sources = {id(tensor) for tensor in tensors(pinned).values()}
    assert {id(source) for source, _, _ in gpu.copies} == sources
    assert len(gpu.copies) == len(sources)
    assert {(device, flag) for _, device, flag in gpu.copies} == {(torch.device("cuda:1"), non_blocking)}
    assert moved.device == torch.device("cuda:1")
    assert_values(moved, kind)
    assert_values(pinned, kind)
    assert len(gpu.copies) == len(sources)  # nothing was left to be read
    assert moved.to("cuda:1", non_blocking=True) is moved
    assert not any(gpu.has(tensor) for tensor in tensors(moved).values())


@pytest.mark.parametrize("out", ["torch", "numpy"])
def test_non_blocking_starts_all_copies_of_any_batch(gpu, kind, out):
    moved = batch_of(kind, out).to("cuda", non_blocking=True)
    assert len(gpu.copies) == len({id(tensor) for tensor in tensors(moved).values()})
    assert {flag for _, _, flag in gpu.copies} == {True}
    assert_values(moved, kind)
    assert_values(moved.to("cpu", non_blocking=True), kind)


def test_a_batch_that_is_not_pinned_moves_what_is_read(gpu):
    moved = batch_of("sage").to("cuda")
    assert not gpu.copies
    np.testing.assert_array_equal(moved.x.numpy(), batch_of("sage", "numpy").x)
    assert [(device, flag) for _, device, flag in gpu.copies] == [(torch.device("cuda"), False)]


def test_the_pinning_of_torch_calls_it(gpu):
    batches = [batch_of("sage"), {"typed": batch_of("typed")}]
    plain, inside = pin_memory(batches)
    assert type(plain) is bs.Batch
    for pinned, kind in ((plain, "sage"), (inside["typed"], "typed")):
        assert_values(pinned, kind)
        assert all(gpu.has(tensor) for tensor in tensors(pinned).values())


@pytest.mark.parametrize("out", ["torch", "numpy"])
def test_attributes_of_the_user_stay(gpu, out):
    batch = batch_of("sage", out)
    batch.note = "mine"
    moved = [pin_memory(batch), batch.to("cpu"), batch.to("cuda", non_blocking=True), batch.pin_memory().to("cuda")]
    assert [one.note for one in moved] == ["mine"] * 4


@pytest.mark.parametrize("first", [lambda batch: batch, lambda batch: batch.pin_memory()])
def test_features_that_take_a_gradient_can_be_pinned_moved_and_pickled(gpu, first):
    batch = first(batch_of("sage"))
    batch.x.requires_grad_()
    pinned = batch.pin_memory()
    for one in (pickle.loads(pickle.dumps(pinned)), copy.deepcopy(pinned)):
        assert_values(one, "sage")
    moved = pinned.to("cuda", non_blocking=True)
    assert moved.x.is_leaf
    assert_values(moved, "sage")
    assert torch.equal(pinned.own_and_mean().mean, batch_of("sage").own_and_mean().mean)


def test_a_pickle_from_a_gpu_comes_to_a_host_without_one(gpu, monkeypatch):
    raw = pickle.dumps(batch_of("sage").to("cuda"))
    monkeypatch.undo()
    assert_values(pickle.loads(raw).to("cpu", non_blocking=True), "sage")


@pytest.mark.parametrize("how", [lambda batch: pickle.loads(pickle.dumps(batch)), copy.deepcopy, copy.copy])
def test_a_copy_of_a_pinned_batch_has_its_values(gpu, kind, how):
    pinned = batch_of(kind).pin_memory()
    copied = how(pinned)
    assert_values(copied, kind)
    assert not gpu.has(copied.vertices["paper"] if kind.startswith("typed") else next(iter(leaves(copied.vertices).values())))
    assert copied.to("cpu") is not copied
    if pinned.has("x"):
        for x in leaves(pinned.x).values():
            x[:] = 7
        assert all((x == 7).all() for x in leaves(how(pinned).x).values())


def test_a_pickle_of_a_pinned_batch_is_as_large_as_that_of_the_batch(gpu):
    batch = batch_of("sage")
    assert len(pickle.dumps(batch.pin_memory())) <= len(pickle.dumps(batch))


def test_the_memory_of_the_gathered_rows_is_free_again(gpu):
    batch = batch_of("sage")
    pinned = batch.pin_memory()
    rows = weakref.ref(batch.columns.x)
    del batch
    assert rows() is None
    assert_values(pinned, "sage")


@pytest.mark.parametrize("kind", ["sage", "typed"])
def test_dropouts_are_those_of_the_batch(gpu, kind):
    """They are counted from 0 in each batch, over all relations of a layer into one type."""

    def dropped(batch):
        blocks = leaves(batch.blocks).values()
        return [block.dropout(torch.ones(block.num_destinations, 4)) for block in blocks for _ in range(2)]

    batch = batch_of(kind)
    wanted, pinned = dropped(batch), batch.pin_memory()
    assert not all(torch.equal(*pair) for pair in zip(wanted[::2], wanted[1::2], strict=True))
    for other in (pinned, pinned.to("cuda", non_blocking=True)):
        assert all(torch.equal(*pair) for pair in zip(dropped(other), wanted, strict=True))


def test_rows_that_ranks_fetched_are_pinned(gpu, tmp_path):
    graph = columns("none")
    graph.save(tmp_path / "store")

    def rank(comm):
        made = bs.Loader(bs.load(tmp_path / "store", world=comm, check="none"), fanouts=[3], seed=1, threads=1, **PAPERS)
        return [(batch.vertices["paper"], batch.pin_memory().x["paper"]) for batch in made]

    for vertices, x in chain(*on_threads(2, rank)):
        assert gpu.has(x)
        np.testing.assert_array_equal(x.numpy(), graph.type("paper").features[vertices.numpy()])


def test_without_a_gpu_it_is_refused_before_anything_is_read(kind, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    batch = batch_of(kind)
    with pytest.raises(UsageError, match="pin_memory: torch sees no GPU, and pinned memory is for copies to one; leave it out"):
        batch.pin_memory()
    assert "x" not in vars(batch.columns)
    with pytest.raises(UsageError, match="device: got 'cuda', but torch sees no GPU"):
        batch.to("cuda", non_blocking=True)


def test_a_batch_on_a_gpu_is_refused(gpu):
    for options in ({}, {"non_blocking": True}):
        with pytest.raises(UsageError, match=r"pin_memory: the batch lies on cuda:0, not on the host; call it before batch\.to\(device\)"):
            batch_of("sage").to("cuda:0", **options).pin_memory()
    with pytest.raises(UsageError, match="non_blocking must be true or false; got 'yes'"):
        batch_of("sage").to("cuda", non_blocking="yes")
