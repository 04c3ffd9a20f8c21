"""Generators: pinned bits, no influence of chunk or back end, and the laws of the recipes."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from samples import digest

from bulksample import UsageError
from bulksample.data import dcsbm as model_module
from bulksample.data.dcsbm import PRESETS, BlockModel, dcsbm
from bulksample.data.describe import describe
from bulksample.data.random_words import RangeLookup, Words, chunks, scaled, threshold
from bulksample.data.rmat import _ends, rmat
from bulksample.rng import Purpose, Substream, philox, tag

TINY = BlockModel(classes=3, features=5, communities=2)


def test_graphs_are_pinned():
    """Two machines that disagree on one bit disagree here."""
    assert digest(rmat(8, 8, seed=1)) == "4095e2bba719e074b2046ee22754a32039d9ebe8693668bb43d2f54a64b96f68"
    options = {"directed": True, "permute": False, "self_loops": True}
    assert digest(rmat(7, 4, seed=2**64 - 1, **options)) == "64829c83fc0c9609662b133d396c6238e4af2b40b7b5ef5b9f1c9dcf89e5ff06"
    assert digest(dcsbm(300, 12, TINY, seed=1)) == "4e2ef8f521ece389c8b48e1fc8ef44c7fddc10c7e55e306a790dccb7400e3e5f"
    assert digest(dcsbm(300, 12, "reddit", seed=1)) == "8ad470e209625ed622b82956aa499235e24905f28571dab28fa586852397492b"


@pytest.mark.parametrize("chunk", [1, 7, 100, 10**6])
def test_the_size_of_a_chunk_changes_nothing(chunk):
    assert digest(rmat(5, 6, seed=3, chunk=chunk)) == digest(rmat(5, 6, seed=3))
    assert digest(dcsbm(40, 6, TINY, seed=3, chunk=chunk)) == digest(dcsbm(40, 6, TINY, seed=3))


def test_the_back_end_changes_nothing(backend):
    assert digest(rmat(7, 6, seed=3, backend=backend)) == digest(rmat(7, 6, seed=3))
    assert digest(dcsbm(200, 6, TINY, seed=3, backend=backend)) == digest(dcsbm(200, 6, TINY, seed=3))


def test_seeds_make_different_graphs():
    assert len({digest(rmat(6, seed=seed)) for seed in range(5)} | {digest(dcsbm(60, 6, TINY, seed=seed)) for seed in range(5)}) == 10


def test_a_word_is_a_function_of_its_name():
    words, pair, last = Words(9), Substream.BLOCK_MODEL_EDGE, tag(Purpose.GENERATE, 33, 0)
    whole = words.of(pair, 0, 40_000, column=2)
    np.testing.assert_array_equal(words.of(pair, 123, 20_000, column=2), whole[123:20_123])
    np.testing.assert_array_equal(whole[5], philox(np.array([[5, 2, 0, last]], np.uint32), 9)[0])
    across = words.of(pair, 2**32 - 2, 4)  # the upper half of an item is another word of the counter
    np.testing.assert_array_equal(across[2:], philox(np.array([[i, 0, 1, last] for i in (0, 1)], np.uint32), 9))
    assert words.of(pair, 7, 0).shape == (0, 4)


def test_chunks_cover_everything_once():
    for total in (0, 1, 9, 10, 11):
        assert [i for first, count in chunks(total, 5) for i in range(first, first + count)] == list(range(total))


def test_scaled_is_the_exact_floor():
    rng = np.random.default_rng(0)
    for width in (32, 48):
        bits = np.append(rng.integers(0, 2**width, 500, dtype=np.uint64), [0, 2**width - 1]).astype(np.uint64)
        bounds = np.append(rng.integers(1, 2**40, 500), [2**40, 2**40])
        assert scaled(bits, width, bounds).tolist() == [int(x) * int(n) >> width for x, n in zip(bits, bounds, strict=True)]


@pytest.mark.parametrize("weights", [[1], [5, 1, 1, 1, 9], [1] * 50, [2**38, 1, 1, 1, 2**38], [1, 2**30] * 20])
def test_a_roulette_is_a_binary_search(weights):
    running = np.concatenate([[0], np.cumsum(weights)])
    edges = np.unique(np.clip(np.concatenate([running, running - 1, running + 1]), 0, running[-1] - 1))
    numbers = np.append(edges, np.random.default_rng(1).integers(0, running[-1], 200))
    np.testing.assert_array_equal(RangeLookup(running).find(numbers), np.searchsorted(running, numbers, side="right") - 1)


def test_a_permutation_is_one():
    order = Words(4).permutation(Substream.RMAT_NAME, 5000)
    assert sorted(order.tolist()) == list(range(5000))
    assert (order == np.arange(5000)).sum() < 10


def test_rmat_is_undirected_without_loops_and_skewed():
    graph = rmat(14, 16, seed=5)
    a = graph.adjacency
    matrix = a.to_scipy()
    assert (matrix != matrix.T).nnz == 0
    assert matrix.diagonal().sum() == 0
    degrees = a.degrees
    assert degrees.max() > 60 * np.median(degrees)
    assert np.sort(degrees)[-len(degrees) // 100 :].sum() > 0.15 * degrees.sum(), "one vertex in a hundred has a large share"
    assert 0.6 * 2 * 16 * graph.n < a.nnz < 2 * 16 * graph.n
    low, high = degrees[: graph.n // 2].sum(), degrees[graph.n // 2 :].sum()
    assert 0.8 < low / high < 1.25, "the numbers of vertices say nothing of their degrees"


def test_rmat_options():
    directed = rmat(8, 4, seed=5, directed=True, permute=False, self_loops=True).adjacency
    both = rmat(8, 4, seed=5, permute=False).adjacency.to_scipy().toarray() > 0
    there = directed.to_scipy().toarray() > 0
    np.fill_diagonal(both, False)
    np.testing.assert_array_equal((there | there.T) & ~np.eye(256, dtype=bool), both)
    assert rmat(6, edges=0).adjacency.nnz == 0
    assert rmat(0, 5).n == 1


@pytest.mark.parametrize(("a", "b", "c"), [(0.57, 0.19, 0.19), (0.25, 0.25, 0.25), (0.1, 0.6, 0.0)])
def test_rmat_falls_into_quadrants_as_asked(a, b, c):
    limits = [threshold(p) for p in (a, a + b, a + b + c)]
    draws = 200_000
    u, v = _ends(Words(8), 5, limits, 0, draws)
    for level in range(5):
        quadrant = 2 * (u >> (4 - level) & 1) + (v >> (4 - level) & 1)
        found = np.bincount(quadrant, minlength=4)
        expected = draws * np.array([a, b, c, 1 - a - b - c])
        assert (np.abs(found - expected) <= 4.5 * np.sqrt(expected) + 1).all()


@pytest.mark.parametrize(
    ("model", "n", "degree", "mean_degree", "homophily"),
    [
        (replace(PRESETS["products"], communities=8), 60_000, 40, 27.4, 0.82),
        (replace(PRESETS["products"], communities=20, homophily=0.94), 20_000, 50, 17.6, 0.80),
        (replace(PRESETS["reddit"], homophily=0.92), 20_000, 100, 60.5, 0.80),
        (replace(PRESETS["reddit"], homophily=0.82, class_signal=2.2), 20_000, 100, 65.8, 0.68),
    ],
)
def test_block_model_has_the_published_figures(model, n, degree, mean_degree, homophily):
    """Mean degree after repetitions and homophily, as measured by another implementation of the recipe."""
    graph = dcsbm(n, degree, replace(model, features=0), seed=2)
    figures = describe(graph)
    assert abs(figures["degree_mean"] / mean_degree - 1) < 0.03
    assert abs(figures["homophily"] - homophily) < 0.015


def test_block_model_classes_labels_and_communities():
    n, model = 100_000, BlockModel(classes=6, class_skew=0.9, communities=3, features=0, label_noise=0.1)
    graph = dcsbm(n, 2, model, seed=1)
    share = np.arange(1, 7) ** -0.9 / (np.arange(1, 7) ** -0.9).sum()
    planted, labels, community = graph.extra["planted_class"], graph.labels, graph.extra["community"]
    assert (np.abs(np.bincount(planted) - n * share) < 4.5 * np.sqrt(n * share)).all()
    np.testing.assert_array_equal(community // 3, planted)
    assert (np.abs(np.bincount(community % 3) - n / 3) < 4.5 * np.sqrt(n / 3)).all()
    expected = 0.1 * (1 - (share**2).sum())
    assert abs((planted != labels).mean() - expected) < 4.5 * np.sqrt(expected / n)


def test_block_model_edges_follow_weights_and_communities():
    n, model = 50_000, BlockModel(classes=5, communities=4, homophily=0.7, degree_spread=0.8, features=0)
    graph = dcsbm(n, 8, model, seed=4)
    a, community = graph.adjacency, graph.extra["community"]
    matrix = a.to_scipy()
    assert (matrix != matrix.T).nnz == 0
    assert matrix.diagonal().sum() == 0
    inside = (community[a.row_of_entry()] == community[a.indices]).mean()
    sizes = np.bincount(community) / n
    assert abs(inside - (0.7 + 0.3 * (sizes**2).sum())) < 0.01
    vertices = model_module._vertices(Words(4), model, 4, n)
    share = vertices.weight / vertices.weight.sum()
    heavy = np.argsort(-share)[: n // 20]
    assert abs(a.degrees[heavy].sum() / a.nnz - share[heavy].sum()) < 0.01
    assert np.std(np.log(vertices.weight)) == pytest.approx(0.8, rel=0.02)


def test_block_model_weights_are_cut():
    vertices = model_module._vertices(Words(0), replace(TINY, degree_spread=3.0), 2, 200_000)
    weight = vertices.weight
    assert (weight == weight.max()).sum() > 10
    assert weight.max() / np.median(weight) == pytest.approx(350 * np.exp(4.5), rel=0.05)
    assert weight.min() >= 1
    assert weight.sum() < 2**40


def test_block_model_features():
    model = BlockModel(classes=4, communities=3, features=30, class_signal=3.2, community_signal=2.0)
    graph = dcsbm(40_000, 1, model, seed=6)
    x, community = graph.features.astype(np.float64), graph.extra["community"]
    assert graph.features.dtype == np.float32
    centres = np.stack([x[community == g].mean(axis=0) for g in range(12)])
    noise = x - centres[community]
    assert abs(noise.std() - 1) < 0.01
    assert np.abs(np.corrcoef(noise.T) - np.eye(30)).max() < 0.03
    of_class = model_module._directions(Words(6), Substream.BLOCK_MODEL_CLASS_VECTOR, 4, 30)
    of_community = model_module._directions(Words(6), Substream.BLOCK_MODEL_COMMUNITY_VECTOR, 12, 30)
    np.testing.assert_allclose(np.linalg.norm(of_class, axis=1), 1)
    np.testing.assert_allclose(centres, 3.2 * np.repeat(of_class, 3, axis=0) + 2.0 * of_community, atol=0.12)


def test_block_model_splits():
    shifted = dcsbm(20_000, 10, replace(PRESETS["products"], features=0), seed=3)
    uniform = dcsbm(20_000, 10, replace(PRESETS["reddit"], features=0), seed=3)
    for graph, sizes in ((shifted, (1600, 400, 18_000)), (uniform, (13_200, 2000, 4800))):
        assert tuple(int(mask.sum()) for mask in graph.masks.values()) == sizes
        assert (sum(mask.astype(int) for mask in graph.masks.values()) == 1).all()
    degrees = shifted.adjacency.degrees
    assert degrees[shifted.masks["train"]].mean() > 2 * degrees[shifted.masks["test"]].mean()
    communities = shifted.extra["community"]
    seen = np.isin(communities[shifted.masks["test"]], communities[shifted.masks["train"]]).mean()
    assert seen < 0.95, "training does not see some communities"
    degrees = uniform.adjacency.degrees
    assert 0.9 < degrees[uniform.masks["train"]].mean() / degrees[uniform.masks["test"]].mean() < 1.1


def test_presets_choose_communities_by_size():
    assert PRESETS["products"].communities_for(2_449_029, 50) == 261
    assert PRESETS["products"].communities_for(100, 50) == 1
    assert PRESETS["reddit"].communities_for(232_965, 492) == 1


def test_small_and_empty_graphs():
    for n in (0, 1, 2):
        graph = dcsbm(n, 3, TINY)
        assert graph.n == len(graph.labels) == len(graph.features) == n
    assert dcsbm(50, 0, TINY).adjacency.nnz == 0


def test_homophily_of_nothing_is_no_number():
    assert np.isnan(describe(dcsbm(50, 0, TINY))["homophily"])
    assert "homophily" not in describe(rmat(4))
    assert describe(dcsbm(0, 0, TINY))["degree_mean"] == 0.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rmat(31), "scale 31 is out of range; use 0 to 30"),
        (lambda: rmat(-1), "scale"),
        (lambda: rmat(4, -1), "must not be negative"),
        (lambda: rmat(4, edges=-1), "must not be negative"),
        (lambda: rmat(4, a=0.6, b=0.3, c=0.2), "probabilities with a sum of at most 1"),
        (lambda: rmat(4, a=-0.1), "probabilities"),
        (lambda: rmat(4, a=float("nan")), "probabilities"),
        (lambda: rmat(4, chunk=0), "chunk"),
        (lambda: rmat(4, seed=-1), "64-bit"),
        (lambda: dcsbm(10, 2, "ppi"), "use products, reddit"),
        (lambda: dcsbm(-1, 2), "got n = -1, degree 2"),
        (lambda: dcsbm(2**31, 2), "got n = 2147483648"),
        (lambda: dcsbm(10, -2), "got n = 10, degree -2, .*degree from 0"),
        (lambda: dcsbm(10, 2, seed=2**64), "64-bit"),
        (lambda: BlockModel(homophily=1.1), "homophily is a share"),
        (lambda: BlockModel(label_noise=float("nan")), "label_noise is a share"),
        (lambda: BlockModel(train=0.8, val=0.3), "leave nothing for the test split"),
        (lambda: BlockModel(degree_spread=3.1), "degree_spread is out of range"),
        (lambda: BlockModel(class_skew=-1), "class_skew"),
        (lambda: BlockModel(classes=0), "classes"),
        (lambda: BlockModel(features=-1), "features"),
        (lambda: BlockModel(communities=0), "communities"),
        (lambda: BlockModel(popularity=-1), "popularity"),
    ],
)
def test_arguments_out_of_range_are_bad_use(make, message):
    with pytest.raises(UsageError, match=message):
        make()


_PEAK = """
from bulksample.data.{what} import {what}
graph = {call}
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))  # ru_maxrss counts the parent too
print(graph.n, graph.adjacency.nnz, int(peak) / 2**20)
"""


@pytest.mark.long
@pytest.mark.parametrize("call", ["rmat(21, edges=15_000_000)", "dcsbm(600_000, 60, 'products')"])
def test_memory_per_edge_lets_a_hundred_million_fit_in_8_gib(call):
    """A tenth to a third of the size, in a process of its own: the part that grows is measured per directed edge."""
    script = _PEAK.format(what=call.split("(")[0], call=call)
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    _, edges, peak = ran.stdout.split()
    assert int(edges) > 20_000_000
    assert (float(peak) - 0.1) / int(edges) * 100_000_000 < 7, f"{peak} GiB at the peak for {edges} edges"


def test_a_lesser_processor_makes_the_same():
    """numpy without its vector variants rounds library functions otherwise; nothing here uses those."""
    features = np._core._multiarray_umath.__cpu_dispatch__
    script = "from samples import digest; from bulksample.data.dcsbm import dcsbm; print(digest(dcsbm(500, 12, seed=4)))"
    environment = {**os.environ, "NPY_DISABLE_CPU_FEATURES": " ".join(features)}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert ran.stdout.strip() == digest(dcsbm(500, 12, seed=4))
