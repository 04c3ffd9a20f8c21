"""Two threads of a user on one graph, loader, batch or device: whatever line they switch at, both get what each gets alone."""

import threading

import numpy as np
import pytest
from communities import community_graph
from engines import engine
from relations_zoo import library
from switches import at_every_line, unlock_cached_properties
from waiting import PATIENCE, join

import bulksample as bs
from bulksample import LocalAdjacency, samplers
from bulksample.loading.loader import BulkLoader
from bulksample.nn.gather import RowPool
from bulksample.samplers import Sampler


@pytest.fixture(autouse=True)
def unlocked(monkeypatch):
    assert bs.Loader  # imported when it is named
    unlock_cached_properties(monkeypatch)


def numbered(n=64):
    """A graph whose features are the numbers of its vertices."""
    x = np.repeat(np.arange(n, dtype=np.float32)[:, None], 4, 1)
    ring = np.arange(n)
    return bs.from_edges(ring, (ring + 1) % n, num_nodes=n, x=x, y=ring % 3, edge_attr=ring.astype(np.float32)[:, None])


def batches(free):
    """Batches of one loader, whose features nobody read yet; so many buffers are free."""
    loader = bs.Loader(numbered(), fanouts=[2], batch_size=8, seeds="all", prefetch=False, threads=1)
    made = list(loader)
    held = [batch.x for batch in made[:free]]
    for batch in made[:free]:
        del batch.__dict__["x"]
    del held
    return made


@pytest.mark.parametrize("free", [0, 1, 2])
def test_the_features_of_two_batches_share_no_memory(free):
    def setup():
        one, other = batches(free)[:2]

        def check(x, y):
            assert not np.shares_memory(x, y)
            for batch, own in ((one, x), (other, y)):
                np.testing.assert_array_equal(own[:, 0], batch.vertices)

        return lambda: one.x, lambda: other.x, check

    assert at_every_line(setup, ["nn/gather.py", "interop"]) > 8


def test_a_buffer_is_still_used_again_by_another_thread():
    pool = RowPool()
    place = pool.rows(8, 4).__array_interface__["data"][0]
    found = []
    thread = threading.Thread(target=lambda: found.append(pool.rows(8, 4).__array_interface__["data"][0]))
    thread.start()
    join(thread)
    assert found == [place]


READ = {
    "plain": (lambda: batches(1)[0], ("x", "y", "e_id", "edge_attr")),
    "tensors": (lambda: batches(1)[0].to(), ("vertices", "x", "y", "e_id", "edge_attr", "seed_weights")),
    "typed": (
        lambda: next(iter(bs.Loader(library("vertices"), fanouts=[3, 2], batch_size=8, seeds=("paper", np.arange(9)),
                                          times=np.arange(9) + 40, prefetch=False, threads=1))),
        ("x_dict", "y_dict", "edge_index_dict", "e_id_dict", "edge_attr_dict"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", READ)
def test_two_threads_read_one_batch(kind):
    made, names = READ[kind]

    def read(batch):
        return [[np.asarray(part).copy() for part in _parts(getattr(batch, name))] for name in names]

    expected = read(made())

    def setup():
        batch = made()

        def check(*found):
            for own in found:
                if isinstance(own, Exception):
                    raise own
                for mine, theirs in zip(own, expected, strict=True):
                    for a, b in zip(mine, theirs, strict=True):
                        np.testing.assert_array_equal(a, b)

        return lambda: read(batch), lambda: read(batch), check

    assert at_every_line(setup, ["interop", "nn", "graph/minibatch.py", "views"]) > 5


def _parts(value):
    return value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else [] if value is None else [value]


KEEP = [  # what is computed once and kept
    "adjacency.py", "local_adjacency.py", "sparse.py", "graph/vertex_table.py", "graph/graph.py", "backends/relational.py",
    "samplers/fastgcn.py", "samplers/arrivals.py",
]  # fmt: skip
GRAPHS = {
    "sage": (lambda: community_graph(60), [3, 2]),
    "ladies": (lambda: community_graph(60, weighted=True), [9, 9]),
    "fastgcn": (lambda: community_graph(60), [20, 20]),
    "shadow": (lambda: community_graph(60), [3]),
    "saint": (lambda: community_graph(60), [3]),
    "relations": (lambda: library("vertices"), [3, 2]),
    "union": (lambda: library(), [9, 9]),
}


@pytest.mark.parametrize("name", [name if name in ("sage", "relations") else pytest.param(name, marks=pytest.mark.long) for name in GRAPHS])
def test_two_loaders_over_one_graph(name):
    made, fanouts = GRAPHS[name]

    def epoch(graph):
        options = {"fanouts": fanouts, "batch_size": 30, "prefetch": False, "threads": 1, "bulk_size": 2, "seeds": "all"}
        if graph.plain:
            return [batch.digest() for batch in bs.Loader(graph, name, **options)]
        own = {"sampler": "ladies", "seeds": "paper"} if name == "union" else {"seeds": ("paper", np.arange(60)), "times": np.arange(60)}
        return [batch.digest() for batch in bs.Loader(graph, **options | own)]

    expected = epoch(made())

    def setup():
        graph = made()

        def check(*found):
            assert list(found) == [expected, expected]

        return lambda: epoch(graph), lambda: epoch(graph), check

    assert at_every_line(setup, KEEP) > 20


def test_two_threads_place_matrices_on_one_device():
    """The kernels compiled for the host: a matrix is placed once, and its bytes are counted once and given back."""
    graph = community_graph(30)

    def setup():
        device, rows = engine("emulated").device, np.arange(5.0)
        own, other = (graph.adjacency.with_values(np.full(graph.adjacency.nnz, value)) for value in (2, 3))
        device.matrix(graph.adjacency)  # one is there already, whose arrays are shared

        def place(matrix):
            there = device.matrix(matrix)
            return device.get(there.values)[:1], device.get(there.indices), device.get(device.constant(rows))

        def check(*found):
            for value, (weight, columns, constant) in zip((2, 3), found, strict=True):
                assert weight == value
                np.testing.assert_array_equal(columns, graph.adjacency.indices)
                np.testing.assert_array_equal(constant, rows)
            assert sum(device._placed_bytes.values()) == graph.adjacency.nbytes() + own.values.nbytes + other.values.nbytes + rows.nbytes

        return lambda: place(own), lambda: place(other), check

    assert at_every_line(setup, ["backends/cuda/device.py"]) > 10


def test_two_iterations_that_run_out_of_memory_at_once():
    """One halves its bulk, of another size, while the other cuts its own into parts."""

    class Scarce(Sampler):
        name, go = "scarce", threading.Event()

        def _sample(self, adjacency, seeds, stream, epoch):
            if len(seeds) == 8:
                self.go.wait(PATIENCE)
            if len(seeds) == 8 or (len(seeds) == 3 and not self.go.is_set()):
                raise MemoryError("scarce")
            return samplers.make("full", [1]).sample_bulk(adjacency, seeds, stream, epoch)

    graph = community_graph(60)

    def setup():
        loader = BulkLoader(LocalAdjacency(graph.adjacency, engine("reference")), Scarce((1,)), np.arange(12), batch_size=1, bulk_size=3)
        Scarce.go.clear()

        def bulk(k):
            seeds = bs.Selection.of([np.array([i]) for i in range(k)], graph.n)
            return [one.id for one in loader._sample_bulk(seeds, 0)]

        found = []
        other = threading.Thread(target=lambda: found.append(bulk(8)))
        other.start()

        def second():
            Scarce.go.set()
            join(other)
            return found[0]

        def check(*of_both):
            assert list(of_both) == [list(range(3)), list(range(8))]

        return lambda: bulk(3), second, check

    with pytest.warns(UserWarning, match="out of memory"):
        assert at_every_line(setup, ["loading/loader.py"]) > 5
    Scarce.go.set()
