"""`Batch.own_and_mean`: the input of a GraphSAGE layer, computed where the features lie.

The oracle reads the features of the graph by the vertices of the batch, and sums over edge lists in float64.
"""

import copy
import pickle
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from communities import community_graph, dense_features
from shared_graphs import PLACES, loader, opened
from test_shared_hetero_loader import TIMED, columns

import bulksample as bs
from bulksample.distributed.comm.threads import on_threads
from bulksample.nn.aggregate import own_and_mean
from bulksample.samplers.hgt import HGSampler
from bulksample.sparse import CSR

SAMPLERS = {
    "sage": {}, "new": {"frontier": "new"}, "replace": {"replace": True}, "weighted": {"weighted": True},
    "seeds twice": {"seeds": [7, 7, 8, 9] * 5}, "labor": {"sampler": "labor"}, "labor new": {"sampler": "labor", "frontier": "new"},
    "full": {"sampler": "full"}, "one hop": {"fanouts": [3]}, "ladies": {"sampler": "ladies", "fanouts": [30, 20]},
    "ladies sums": {"sampler": "ladies", "debias": False, "fanouts": [30, 20]},
    "fastgcn": {"sampler": "fastgcn", "fanouts": [60, 60]}, "shadow": {"sampler": "shadow"},
    "saint": {"sampler": "saint", "fanouts": [1, 1]}, "saint weights": {"sampler": "saint", "fanouts": [1, 1], "coverage": 5},
}  # fmt: skip
FEATURES = ["float32", "float16", "sparse", "mapped", "strided"]


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    """One weighted graph with its features in every form."""
    folder, plain = tmp_path_factory.mktemp("graphs"), community_graph(weighted=True)
    x = plain.features
    half = replace(plain, features=x.astype(np.float16))
    half.save(folder / "half")
    sparse = CSR.from_edges(*np.nonzero(x > 0.5), x.shape, x[x > 0.5])
    strided = np.repeat(x, 2, axis=1)[:, ::2]
    assert not strided.flags.c_contiguous
    forms = (plain, half, replace(plain, features=sparse), bs.load(folder / "half"), replace(plain, features=strided))
    return dict(zip(FEATURES, forms, strict=True))


def unread(batch):
    """True if no x was made."""
    return "x" not in vars(batch) and "x" not in vars(batch.columns)


def assert_part(block, own, mean, x_own, x_sources):
    """Hold one relation against float64 sums over its edges, and against the package's own function of gathered rows, bit by bit."""
    d = block.num_destinations
    row, column = torch.from_numpy(np.repeat(np.arange(d), np.diff(block.indptr))), torch.from_numpy(block.indices.astype(np.int64))
    weights = 1 / torch.bincount(row, minlength=d)[row] if block.weights is None else torch.tensor(block.weights)
    terms = torch.tensor(x_sources, dtype=torch.float64)[column] * weights.double()[:, None]
    exact = torch.zeros(d, x_sources.shape[1], dtype=torch.float64).index_add(0, row, terms)
    scale = torch.zeros_like(exact).index_add(0, row, terms.abs())
    assert mean.dtype == np.float32
    assert mean.shape == exact.shape
    assert (abs(mean - exact.numpy()) <= 1e-6 * (len(column) and np.diff(block.indptr).max() + 2) * scale.numpy() + 1e-30).all()
    gathered = own_and_mean(block, torch.tensor(x_sources, dtype=torch.float32))
    assert mean.tobytes() == gathered.mean.numpy().tobytes()
    if own is not None:
        assert own.dtype == np.float32
        np.testing.assert_array_equal(own, x_own[:d])


def assert_plain(batch, x):
    rows = x[batch.vertices]
    own, mean = batch.own_and_mean()
    assert_part(batch.blocks[0], own, mean, rows, rows)


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("options", SAMPLERS.values(), ids=SAMPLERS)
def test_they_are_those_of_the_graph_for_every_sampler_and_form_of_features(graphs, options, features):
    graph, x, edges = graphs[features], dense_features(graphs[features]), 0
    for threads in (1, 2):
        for batch in loader(graph, **options, threads=threads):
            assert_plain(batch, x)
            assert unread(batch)
            np.testing.assert_array_equal(batch.x, x[batch.vertices].astype(np.float32))
            assert batch.own_and_mean() is batch.own_and_mean()
            edges += batch.blocks[0].num_edges
    assert edges > 100


@pytest.mark.parametrize("backend", ["reference", "native"])
def test_they_do_not_depend_on_the_back_end_that_samples(graphs, backend):
    made = [
        [(batch.own_and_mean().own.tobytes(), batch.own_and_mean().mean.tobytes()) for batch in loader(graphs["float32"], **options)]
        for options in ({"backend": backend, "threads": None}, {})
    ]
    assert made[0] == made[1]


def with_authors(times="none", **options):
    """The library of `columns`, whose authors have features of half precision: several forms side by side, and types without any."""
    graph = columns(times, **options)
    x = np.random.default_rng(5).standard_normal((40, 5)).astype(np.float16)
    types = tuple(replace(kind, features=x) if kind.name == "author" else kind for kind in graph.types)
    return replace(graph, types=types).validate()


def assert_typed(batch, graph):
    """Hold the parts of a batch against the columns of the graph, and its layers against each other."""
    x = {kind.name: dense_features(kind) for kind in graph.types if kind.features is not None}
    rows = {name: x[name][part.vertices] for name, part in batch.minibatch.rows.items() if name in x}
    own, mean = batch.own_and_mean()
    assert list(own) == list(x)
    assert list(mean) == [relation.key for relation in graph.relations if relation.source in x]
    for key, values in mean.items():
        into = key[2]
        assert_part(batch.blocks[0][key], own.get(into), values, rows.get(into), rows[key[0]])
    for blocks in batch.blocks[1:2]:  # the sources of the next layer are the destinations of the first
        assert {key: block.num_sources for key, block in blocks.items() if key[0] in x} == {
            key: len(own[key[0]]) for key in blocks if key[0] in x
        }
    for name, values in own.items():  # also of types into which no relation leads
        np.testing.assert_array_equal(values, rows[name][: len(values)].astype(np.float32))


@pytest.mark.parametrize(("times", "options"), [
    ("none", {}), ("none", {"frontier": "new"}), ("none", {"sampler": "labor"}), ("none", {"sampler": "full"}), ("none", {"replace": True}),
    ("none", {"disjoint": True}), ("none", {"fanouts": [3]}), ("vertices", TIMED), ("edges", {**TIMED, "frontier": "new"}),
    ("none", {"sampler": "ladies", "fanouts": [20, 10]}), ("none", {"sampler": "fastgcn", "fanouts": [20, 10], "debias": False}),
    ("none", {"sampler": HGSampler({name: (4, 3) for name in ("paper", "author", "word", "venue", "alone")}), "fanouts": None}),
], ids=["sage", "new", "labor", "full", "replace", "trees", "one hop", "times", "times of edges", "ladies", "fastgcn", "hgt"])  # fmt: skip
def test_by_type_and_relation_they_are_those_of_the_graph(times, options):
    graph, met = with_authors(times, parallel=options.get("sampler") != "labor"), 0  # which refuses parallel edges
    options = {"batch_size": 8, "seeds": {"paper": np.arange(40), "venue": [1, 6, 1]}, **options}
    for threads in (1, 2):
        for batch in loader(graph, **{**options, "threads": threads}):
            assert_typed(batch, graph)
            assert unread(batch)
            met += len(batch.own_and_mean().own["word"])
            assert set(batch.x) == set(batch.own_and_mean().own)
    assert met or options.get("fanouts") == [3]  # one hop leads to words as sources alone


@pytest.mark.parametrize("features", ["float16", "sparse"])
def test_of_a_plain_graph_they_are_given_by_type_too(graphs, features):
    graph, key = graphs[features], ("node", "to", "node")
    plain = [batch.own_and_mean() for batch in loader(graph, batch_size=300)]
    typed = [batch.own_and_mean() for batch in loader(graph, batch_size=300, as_dicts=True)]
    x = dense_features(graph)
    for batch in loader(graph, as_dicts=True, disjoint=True):
        rows = x[batch.vertices["node"]]
        assert_part(batch.blocks[0][key], batch.own_and_mean().own["node"], batch.own_and_mean().mean[key], rows, rows)
    assert [(len(one.own), len(one.mean)) for one in plain] == [(len(one.own["node"]), len(one.mean[key])) for one in typed]


@pytest.mark.parametrize("typed", [False, True])
def test_tensors_share_the_memory_of_the_arrays_and_need_no_gradient(graphs, typed):
    for batch in loader(with_authors() if typed else graphs["float16"], out="torch", **({"seeds": "paper"} if typed else {})):
        tensors, arrays = batch.own_and_mean(), batch.columns.own_and_mean
        for part, array in zip(tensors, arrays, strict=True):
            pairs = [(part[key], array[key]) for key in array] if typed else [(part, array)]
            for tensor, values in pairs:
                assert type(tensor) is torch.Tensor
                assert tensor.numel() == 0 or tensor.data_ptr() == values.ctypes.data
                assert (tensor.dtype, tensor.requires_grad) == (torch.float32, False)
                np.testing.assert_array_equal(tensor.numpy(), values)
        assert type(tensors).__name__ == "OwnAndMean"
        there = batch.to("meta").own_and_mean()  # a device that holds no numbers
        assert {part.device.type for parts in there for part in (parts.values() if typed else [parts])} == {"meta"}
        assert unread(batch)


def test_to_write_to_them_does_not_change_x(graphs):
    for form in ("float32", "sparse"):
        made = next(iter(loader(graphs[form])))
        for batch in (made, pickle.loads(pickle.dumps(made))):
            for part in batch.own_and_mean():
                part += 1
            np.testing.assert_array_equal(batch.x, dense_features(graphs[form])[batch.vertices].astype(np.float32))


def test_parts_that_are_kept_stay_when_memory_is_reused(graphs):
    """Every other pair is kept; the memory of the others is free for later batches."""
    kept = []
    for i, batch in enumerate(loader(graphs["float32"], out="torch", bulk_size=1)):
        own, mean = batch.own_and_mean()
        if i % 2:
            kept.append((own, mean, own.clone(), mean.clone()))
    assert len(kept) > 2
    for own, mean, own_then, mean_then in kept:
        assert torch.equal(own, own_then)
        assert torch.equal(mean, mean_then)


def values_of(batch):
    """The bytes of own and mean, of every type and relation."""
    return [
        (str(key), np.asarray(part).tobytes())
        for parts in batch.own_and_mean()
        for key, part in (parts.items() if isinstance(parts, dict) else [("all", parts)])
    ]


@pytest.mark.parametrize("out", ["numpy", "torch"])
@pytest.mark.parametrize("kind", ["float16", "sparse", "typed", "none"])
def test_a_pickle_needs_no_graph_and_holds_no_more_than_x(graphs, kind, out):
    graph = {"typed": with_authors(), "none": replace(graphs["float32"], features=None)}.get(kind) or graphs[kind]
    for batch in loader(graph, out=out, **({"seeds": "paper"} if kind == "typed" else {})):
        before = pickle.dumps(batch)
        again, copied = pickle.loads(before), copy.deepcopy(batch)
        assert "_tables" not in vars(again.columns)
        if kind == "none":
            for one in (batch, again, copied):
                with pytest.raises(bs.UsageError, match="has no features"):
                    one.own_and_mean()
            continue
        assert values_of(again) == values_of(batch) == values_of(copied)
        assert set(again.columns.__getstate__()) == {"minibatch", "name", "x", "y", "e_id", "edge_attr"}
        assert abs(len(pickle.dumps(batch)) - len(before)) < 200  # shared names of dtypes; each part has more bytes


@pytest.mark.parametrize("out", ["numpy", "torch"])
def test_a_plain_graph_without_features_says_so_as_for_x(out):
    graph = bs.from_edges([0, 1], [1, 0], name="bare")
    batch = next(iter(bs.Loader(graph, fanouts=[2], out=out)))
    for read in (lambda: batch.x, batch.own_and_mean):
        with pytest.raises(
            bs.UsageError, match=r"^graph 'bare' has no features; give x to from_edges, or import with `bulksample data imp"
        ):
            read()
    assert next(iter(bs.Loader(graph, fanouts=[2], as_dicts=True, out=out))).own_and_mean() == ({}, {})


def test_profilers_see_them_as_one_fetch(graphs):
    seen = []

    @contextmanager
    def profile(name):
        seen.append(name)
        yield

    for graph, more in ((graphs["float32"], {}), (graphs["sparse"], {}), (with_authors(), {"seeds": "paper"})):
        for batch in loader(graph, profile=profile, **more):
            seen.clear()
            batch.own_and_mean()
            batch.own_and_mean()
            assert seen == ["bulksample: fetch"]
            seen.clear()
            batch.x  # noqa: B018
            assert seen == ["bulksample: fetch"]


@pytest.mark.parametrize(("topology", "features"), PLACES)
@pytest.mark.parametrize(("kind", "options"), [
    ("plain", {}), ("weighted", {"sampler": "ladies", "fetch_together": 2}), ("sparse", {"frontier": "new"}),
    ("plain", {"sampler": "labor", "out": "torch"}), ("weighted", {"as_dicts": True, "disjoint": True}),
], ids=["sage", "ladies", "sparse", "tensors", "dicts"])  # fmt: skip
def test_ranks_that_share_a_graph_compute_them_from_fetched_rows(stored, kind, options, topology, features):
    folder, graphs = stored
    alone = {name: value for name, value in options.items() if name != "fetch_together"}
    expected = {batch.id: values_of(batch) for batch in loader(graphs[kind], **alone)}

    def rank(comm):
        found = {}
        for batch in loader(opened(folder / kind, comm, topology=topology, features=features), **options):
            found[batch.id] = values_of(batch)
            assert unread(batch)
            assert values_of(pickle.loads(pickle.dumps(batch))) == found[batch.id]
        return found

    shares = on_threads(2, rank)
    assert all(0 < len(share) < len(expected) for share in shares)
    assert {**shares[0], **shares[1]} == expected


@pytest.mark.parametrize(("topology", "features"), PLACES)
def test_ranks_that_share_several_types_compute_them_from_fetched_rows(tmp_path, topology, features):
    graph, options = with_authors("vertices"), {**TIMED, "batch_size": 8}
    graph.save(tmp_path / "g")
    expected = {batch.id: values_of(batch) for batch in loader(graph, **options)}

    def rank(comm):
        partition = "random" if "partitioned" in (topology, features) else "block"
        batches = loader(opened(tmp_path / "g", comm, topology=topology, features=features, partition=partition), **options)
        return {batch.id: values_of(batch) for batch in batches if not assert_typed(batch, graph)}

    shares = on_threads(2, rank)
    assert {**shares[0], **shares[1]} == expected


def first_layer_of_x(batch):
    block = batch.blocks[0]
    return batch.x[: block.num_destinations], block.aggregate(batch.x)


@pytest.mark.parametrize("options", [{}, {"frontier": "new"}, {"sampler": "ladies"}], ids=["sage", "new", "ladies"])
def test_a_graphsage_learns_the_same_from_them_as_from_x(graphs, options):
    graph, losses = graphs["float16"], []
    for first in (first_layer_of_x, lambda batch: batch.own_and_mean()):
        torch.manual_seed(3)
        weights = [torch.randn(*shape, requires_grad=True) for shape in ((8, 16), (8, 16), (1, 16), (16, 3), (16, 3), (1, 3))]
        w_own, w_mean, b, v_own, v_mean, c = weights
        optimizer, found = torch.optim.Adam(weights, lr=0.05), []
        for batch, _ in zip(loader(graph, out="torch", **options), range(3), strict=False):
            own, mean = first(batch)
            h = (own @ w_own + mean @ w_mean + b).relu()
            for block in batch.blocks[1:]:
                h = h[: block.num_destinations] @ v_own + block.aggregate(h) @ v_mean + c
            loss = torch.nn.functional.cross_entropy(h, batch.y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        losses.append(found)
    assert len(set(losses[0])) == 3
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)
