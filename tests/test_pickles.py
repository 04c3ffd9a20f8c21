"""Pickles and copies: a batch holds its values, a loader its position, a store its path; what belongs to one process says so."""

import copy
import io
import multiprocessing
import pickle
import re
import shutil
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import torch
from communities import community_graph
from relations_zoo import library
from waiting import PATIENCE

import bulksample as bs
from bulksample import DataError, LocalAdjacency, UsageError, samplers
from bulksample.backends.cuda.backend import Cuda
from bulksample.distributed.comm.threads import on_threads
from bulksample.graph.seed_list import SeedList
from bulksample.loading.loader import BulkLoader
from bulksample.samplers import Sage


def pickled(value):
    return pickle.loads(pickle.dumps(value))


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


HOW = {"pickle": pickled, "deepcopy": copy.deepcopy, "torch.save": saved}


@pytest.fixture(params=HOW)
def how(request):
    return HOW[request.param]


def plain(n=300, **changes):
    graph = community_graph(n)
    features = np.arange(graph.adjacency.nnz * 2.0, dtype=np.float32).reshape(-1, 2)
    return replace(graph, **{"edge_features": features, **changes})


def typed():
    graph = library("vertices")
    paper = replace(
        graph.types[0], features=np.random.default_rng(0).random((60, 3)).astype(np.float32), labels=np.arange(60) % 4, num_classes=4
    )
    cites = replace(graph.relations[0], features=np.arange(graph.relations[0].edges, dtype=np.float32)[:, None])
    return replace(graph, types=(paper, *graph.types[1:]), relations=(cites, *graph.relations[1:]))


def loaders():
    """A loader of every kind, made anew by each call of its function."""
    papers = {"seeds": ("paper", np.arange(40)), "times": np.arange(40) + 5, "batch_size": 8, "seed": 3}
    options = {"fanouts": [4, 3], "batch_size": 16, "seed": 5, "threads": 1, "out": "numpy"}
    return {
        **{
            name: lambda name=name: bs.Loader(plain(), name, **options) for name in ("sage", "labor", "ladies", "fastgcn", "shadow", "full")
        },
        "saint": lambda: bs.Loader(plain(), "saint", **options, coverage=3),
        "nested": lambda: bs.Loader(plain(), **options, frontier="new", prefetch=False),
        "groups": lambda: bs.Loader(plain(), **options, seed_locality=2),
        "sparse": lambda: bs.Loader(community_graph(sparse=True), **options),
        "bare": lambda: bs.Loader(replace(plain(), features=None, labels=None, masks={}, edge_features=None), **options),
        "tensors": lambda: bs.Loader(plain(), **options).to("cpu"),
        "typed": lambda: bs.Loader(typed(), fanouts=[3, 2], **papers, out="numpy"),
        "typed nested": lambda: bs.Loader(typed(), fanouts=[3, 2], frontier="new", **papers),
    }


LOADERS = loaders()


@pytest.fixture(params=LOADERS)
def made(request):
    return LOADERS[request.param]


def arrays(value):
    """Every array in what a user reads of a batch."""
    if isinstance(value, torch.Tensor):
        value = value.numpy()
    if isinstance(value, dict):
        return [array for key in value for array in [np.array(repr(key)), *arrays(value[key])]]
    if isinstance(value, tuple | list):
        return [array for part in value for array in arrays(part)]
    if value is None or isinstance(value, bool | int | str):
        return [np.array(repr(value))]
    if isinstance(value, np.ndarray):
        return [value]
    return arrays([getattr(value, name) for name in ("indptr", "indices", "weights", "num_sources") if hasattr(value, name)])


NAMES = (
    "id",
    "epoch",
    "repeated",
    "vertices",
    "seeds",
    "seed_rows",
    "seed_weights",
    "blocks",
    "x",
    "y",
    "e_id",
    "edge_attr",
    "edge_index_dict",
)


def values(batch):
    """All that a user reads of a batch; what it refuses to say, as the words of the refusal."""
    read = {}
    for name in NAMES:
        try:
            read[name] = arrays(getattr(batch, name))
        except UsageError as error:
            read[name] = [np.array(str(error))]
    read["latest"] = arrays(getattr(batch.minibatch, "latest", None))
    return read


def assert_same(one, other):
    expected, found = values(other), values(one)
    assert found.keys() == expected.keys()
    for name, parts in expected.items():
        assert len(found[name]) == len(parts), name
        for ours, theirs in zip(found[name], parts, strict=True):
            assert ours.dtype == theirs.dtype, name
            np.testing.assert_array_equal(ours, theirs, err_msg=name)
    assert one.digest() == other.digest()


def test_a_copied_batch_has_all_values(made, how):
    first, again = (next(iter(made())) for _ in range(2))
    copied = how(first)  # before anything was read of it
    assert_same(copied, again)
    assert_same(how(copied), again)
    assert type(copied) is type(first)


@pytest.mark.parametrize("kind", ["sage", "tensors", "typed", "nested"])
def test_a_pickled_batch_holds_its_values_and_nothing_more(kind):
    batch = next(iter(LOADERS[kind]()))
    held = sum(array.nbytes for parts in values(batch).values() for array in parts)
    hidden = batch.minibatch.nbytes() if kind == "typed" else 0  # blocks of the other layers
    assert len(pickle.dumps(batch)) < 1.1 * (held + hidden) + 4000


def test_the_size_of_a_pickled_batch_does_not_depend_on_the_graph():
    sizes = []
    for n in (500, 50_000):
        graph = bs.from_edges(np.arange(1, n), np.arange(n - 1), num_nodes=n, x=np.ones((n, 8), np.float32), y=np.zeros(n, int))
        batch = next(iter(bs.Loader(graph, fanouts=[1], batch_size=16, seeds=np.arange(100), shuffle=False)))
        sizes.append(len(pickle.dumps(batch)))
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("kind", ["sage", "typed"])
def test_arrays_of_a_copied_batch_are_read_only_where_they_were(kind, how):
    batch = next(iter(LOADERS[kind]()))
    batch.digest()  # reads the seeds
    copied = how(batch)
    assert not any(part.flags.writeable for name in ("seeds", "seed_rows") for part in arrays(getattr(copied.minibatch, name)) if part.ndim)
    blocks = copied.blocks if kind == "sage" else [block for layer in copied.minibatch.blocks for block in layer.values()]
    assert not any(block.indices.flags.writeable or block.indptr.flags.writeable for block in blocks)
    assert not any(part.flags.writeable for part in arrays(copied.minibatch.vertices) if part.ndim)


def test_a_change_of_the_features_of_a_batch_travels(how):
    batch = next(iter(LOADERS["sage"]()))
    batch.x[:] = 7
    assert (how(batch).x == 7).all()
    assert (how(batch.to()).x == 7).all()


@pytest.mark.parametrize("taken", [0, 2, -1])
def test_a_copied_loader_goes_on_where_its_state_stands(made, how, taken):
    expected = [batch.digest() for batch in made()] + [batch.digest() for batch in _second(made())]
    loader = made()
    steps = len(loader)
    batches = iter(loader)
    begun = [next(batches).digest() for _ in range(taken % steps + (taken < 0))]
    copied, state = how(loader), loader.state_dict()
    assert copied.state_dict() == _onward(made(), state)
    assert begun + [batch.digest() for batch in copied] == expected[: len(begun)] + expected[len(begun) :][: steps - len(begun) % steps]
    assert begun + [batch.digest() for batch in batches] == expected[:steps]  # the loader itself goes on as before


def _second(loader):
    loader.bulks.epoch = 1
    return loader


def _onward(loader, state):
    loader.load_state_dict(state)
    return loader.state_dict()


def test_a_pickled_loader_holds_the_graph_once():
    graph = plain(3000)
    held = graph.adjacency.nbytes() + graph.features.nbytes + graph.labels.nbytes + graph.edge_features.nbytes
    loader = bs.Loader(graph, "ladies", [40, 40], batch_size=16)
    for _ in loader:  # all that is computed once is there
        pass
    bulk = next(iter(loader)).minibatch.nbytes()
    assert len(pickle.dumps(loader)) < 1.25 * held + bulk + 20_000


def test_bulk_loaders_are_copied_too(how):
    graph, relations = plain(), typed()
    made = [
        BulkLoader(LocalAdjacency(graph.adjacency, bs.backends.make()), samplers.make("ladies", [8, 8]), np.arange(90), batch_size=16),
        BulkLoader(
            LocalAdjacency(relations, bs.backends.make("reference"), by_type=True), Sage((3, 2)),
            SeedList.of(relations, ("paper", np.arange(40))), batch_size=8,
        ),
    ]  # fmt: skip
    for loader in made:
        expected = [one.digest() for one in how(loader)]
        assert [one.digest() for one in loader] == expected


# --- stores ---------------------------------------------------------------------------------------------------


@pytest.fixture(params=["plain", "sparse", "typed"])
def store(request, tmp_path):
    graph = {"plain": plain, "sparse": lambda: community_graph(sparse=True), "typed": typed}[request.param]()
    graph.save(tmp_path / "store")
    return tmp_path / "store"


def digests(graph):
    """The mini-batches of a graph of either kind, and the sum of what they gathered."""
    if graph.plain:
        return [(batch.digest(), batch.x.sum()) for batch in bs.Loader(graph, fanouts=[3, 3], batch_size=50)]
    return [(b.digest(), b.x_dict["paper"].sum()) for b in bs.Loader(graph, fanouts=[3, 3], batch_size=20, seeds="paper")]


def test_a_copied_store_is_mapped_again(store, how):
    graph = bs.load(store)
    expected, copied = digests(graph), how(graph)
    assert digests(copied) == expected
    assert digests(how(copied)) == expected
    copied.validate()


def test_no_array_of_a_store_is_copied(tmp_path):
    n = 400_000
    graph = bs.from_edges(np.arange(1, n), np.arange(n - 1), num_nodes=n, x=np.ones((n, 8), np.float32), y=np.arange(n) % 5)
    graph.save(tmp_path / "large")
    opened_graph = bs.load(tmp_path / "large")
    text = pickle.dumps(opened_graph)
    assert len(text) < 4000
    tracemalloc.start()
    again, alone = pickle.loads(text), copy.copy(opened_graph)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20
    assert np.array_equal(again.adjacency.indices, opened_graph.adjacency.indices)
    assert np.array_equal(again.features, opened_graph.features)
    assert np.array_equal(alone.labels, opened_graph.labels)


def test_a_store_that_has_been_replaced_is_not_read(store):
    graph = bs.load(store)
    expected, text = digests(graph), pickle.dumps(graph)
    shutil.copytree(store, store.with_name("kept"))
    shutil.rmtree(store)
    assert digests(pickled(graph)) == expected  # the files are still mapped here, and copied now
    with pytest.raises(DataError, match="is missing or has changed since its array was pickled; open the store anew"):
        pickle.loads(text)
    shutil.copytree(store.with_name("kept"), store)
    with pytest.raises(DataError, match="has changed since"):
        pickle.loads(text)


# --- processes ------------------------------------------------------------------------------------------------


class Mixed(torch.utils.data.IterableDataset):
    """Batches of every kind, as the worker of a `DataLoader` yields them."""

    def __init__(self, folder):
        options = {"fanouts": [4, 3], "batch_size": 100, "seed": 5, "seeds": "all", "threads": 1}
        self.loaders = [
            bs.Loader(plain(), **options),
            bs.Loader(bs.load(folder), **options).to("cpu"),
            bs.Loader(typed(), fanouts=[3, 2], batch_size=20, seeds="paper", times=np.arange(60), threads=1),
        ]

    def __iter__(self):
        for loader in self.loaders:
            yield from loader


@pytest.mark.parametrize("context", multiprocessing.get_all_start_methods())
def test_a_worker_of_torch_yields_batches(tmp_path, context):
    plain().save(tmp_path / "store")
    expected = list(Mixed(tmp_path / "store"))
    workers = torch.utils.data.DataLoader(
        Mixed(tmp_path / "store"), batch_size=None, num_workers=1, multiprocessing_context=context, timeout=PATIENCE
    )
    found = list(workers)
    assert len(expected) > 8
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert_same(one, other)


def _put(queue, loaders):
    for loader in loaders:
        queue.put(next(iter(loader)))
    queue.close()
    queue.join_thread()


@pytest.mark.parametrize("context", multiprocessing.get_all_start_methods())
def test_a_queue_carries_batches_and_a_process_takes_loaders(context):
    here = multiprocessing.get_context(context)
    queue, loaders = here.Queue(), [LOADERS[kind]() for kind in ("fastgcn", "saint", "typed")]
    expected = [next(iter(LOADERS[kind]())) for kind in ("fastgcn", "saint", "typed")]
    child = here.Process(target=_put, args=(queue, loaders))
    child.start()
    try:
        for other in expected:
            assert_same(queue.get(timeout=PATIENCE), other)
        child.join(PATIENCE)
        assert child.exitcode == 0
    finally:
        child.kill()


# --- refusals -------------------------------------------------------------------------------------------------


def test_what_connects_ranks_says_why_it_stays(stored, how):
    def shared_loader(graph):
        return bs.Loader(graph, fanouts=[4, 3], batch_size=16, seeds="train", seed=5, threads=1)

    def rank(comm):
        graph = bs.load(stored / "plain", world=comm, check="none")
        for held, message in [
            (comm, "it connects this process with other ranks; make the graph or the loader that uses it on every rank"),
            (graph, "ranks share it; call bulksample.load(path, world=...) on every rank"),
            (shared_loader(graph), "ranks"),
        ]:
            with pytest.raises(UsageError, match=re.escape(message)):
                how(held)
        batches = list(shared_loader(graph))
        comm.barrier()
        for ours, theirs in zip(map(how, batches), batches, strict=True):  # what ranks have fetched is held
            assert_same(ours, theirs)

    on_threads(2, rank)


def test_a_back_end_on_a_gpu_says_what_to_use_instead(how):
    with pytest.raises(UsageError, match="it holds a stream and memory of a GPU; make the loader in the process that uses it, or take"):
        how(object.__new__(Cuda))
