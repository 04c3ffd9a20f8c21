"""Audit the laws of the samplers: chi-square over enumerated outcomes, and unbiasedness over two hops, corrected for the number of tests.

Every expected probability is enumerated here, by formulas that share no code with the samplers. A check yields p-values; Holm's correction
makes the chance that a sound package fails any of them at most 1 %. Layer-dependent LABOR is biased by design, and is checked against
its enumerated mean. `z` shows how large single values get by chance in 200 shorter runs of LABOR, and how that bias looks in them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from typing import Annotated, Any

import numpy as np
from audit_outcomes import (
    aggregated,
    chi_square,
    counted,
    holm,
    labor_rows,
    labor_two_hops,
    multisets,
    saint_sets,
    sequential,
    shadow_sets,
    uniform_pairs,
)  # fmt: skip
from scipy import stats

from bulksample import CSR, LocalAdjacency, Selection, Stream, backends, samplers
from bulksample.rng import Law
from bulksample.samplers.fastgcn import importance

LEVEL, TOGETHER = 0.01, 20_000  # the level of the whole audit, mini-batches in one bulk
EACH = 4  # neighbors that a mini-batch of the checks below draws, at least
ROWS = [[1, 2, 3, 4, 5], [0, 3, 4, 5, 6], [0, 1, 4], [1, 2, 6], [0, 2, 3, 6], [1], [2, 4, 5, 3]]  # row v: the vertices that v aggregates
WEIGHTS = np.array([1, 2, 3, 4, 10, 0, 7])
Check = Callable[[int, int], dict[str, float]]  # draws, seed -> p-value of each test


def matrix(rows: list[list[int]], weights: np.ndarray | None = None) -> CSR:
    """Return the graph whose row v lists these vertices."""
    columns = [sorted(row) for row in rows]
    indptr = np.cumsum([0, *map(len, columns)])
    return CSR(indptr, np.concatenate(columns).astype(np.int32), weights, (len(rows), len(rows)))


def adjacency(rows: list[list[int]] = ROWS) -> LocalAdjacency:
    return LocalAdjacency(matrix(rows), backends.make("auto"))


def one_row(law: Law, fanout: int, degree: int, weights: np.ndarray | None) -> Check:
    """Check that every subset (multiset) of a row is drawn with its probability."""

    def run(draws: int, seed: int) -> dict[str, float]:
        fixed = None if weights is None else np.tile(weights.astype(np.int64) << 40, degree)
        graph = matrix([list(range(degree))] * degree, fixed)
        q = Selection(np.arange(draws), np.arange(draws + 1), np.zeros(draws, np.int32), degree)
        picks = backends.make("auto").sample_rows(graph, q, fanout, Stream(seed).draw(law))
        share = np.ones(degree) if weights is None else weights
        again = law in (Law.REPLACEMENT, Law.WEIGHTED)
        expected = multisets(share, fanout) if again else sequential(share, fanout)
        return {"subsets": chi_square(counted(np.sort(picks.columns.reshape(draws, fanout), axis=1)), expected)}

    return run


def two_rows(name: str) -> Check:
    """Check the joint law of rows 0 and 1: independent for GraphSAGE, by shared keys for LABOR."""

    def run(draws: int, seed: int) -> dict[str, float]:
        law = Law.LABOR if name == "labor" else Law.UNIFORM
        q = Selection.of([np.array([0, 1], np.int32)] * draws, len(ROWS))
        picks = backends.make("auto").sample_rows(matrix(ROWS), q, 2, Stream(seed).draw(law))
        expected = labor_rows(ROWS[:2], 2) if name == "labor" else uniform_pairs(ROWS[:2], 2)
        return {"pairs of subsets": chi_square(counted(picks.columns.reshape(draws, 4)), expected)}

    return run


def layer_wise(name: str, **options: Any) -> Check:
    """Check the subsets that LADIES or FastGCN draws for the frontier 0, 1, 2; candidates are weighed by the formula of the paper."""

    def run(draws: int, seed: int) -> dict[str, float]:
        frontier, graph = np.array([0, 1, 2], np.int32), adjacency()
        dense = graph.whole_matrix.to_scipy().toarray().astype(float)
        share = (dense / dense.sum(axis=1, keepdims=True)) ** 2
        weight = (share if name == "fastgcn" else share[frontier]).sum(axis=0)
        if options.get("importance") == "squared_sum":
            weight = dense[frontier].sum(axis=0) ** 2
        q, draw = Selection.of([frontier] * draws, len(ROWS)), Stream(seed).layer_draw()
        if name == "fastgcn":
            picks = importance(graph).draw(graph.backend, 3, q.minibatches, draw)
        else:
            law = samplers.make("ladies", (3,), **options).law(graph, q, [draw])
            picks = graph.sample_layer(q, law.entries, law.power, 3, draw)
        return {"subsets": chi_square(counted(picks.columns.reshape(draws, 3)), sequential(weight, 3))}

    return run


def bulks(sampler: Any, graph: LocalAdjacency, seeds: np.ndarray, seed: int) -> Iterator[list[Any]]:
    """Sample mini-batch i with the seeds of row i, in bulks."""
    for first in range(0, len(seeds), TOGETHER):
        part = seeds[first : first + TOGETHER]
        yield sampler.sample_bulk(graph, Selection.of(list(part), graph.n, np.arange(first, first + len(part))), Stream(seed))


def subgraphs(name: str) -> Check:
    """Check the sets of vertices of GraphSAINT's walks from 0 and 3, and of the subgraph that ShaDow gives to 0."""

    def run(draws: int, seed: int) -> dict[str, float]:
        saint = name == "saint"
        sampler = samplers.make("saint", (1,), walk_length=2) if saint else samplers.make("shadow", (2, 1))
        roots = [0, 3] if saint else [0]
        counts: dict[frozenset[int], int] = {}
        for bulk in bulks(sampler, adjacency(), np.tile(np.array(roots, np.int32), (draws // EACH, 1)), seed):
            for minibatch in bulk:
                held = frozenset(minibatch.vertices.tolist())
                counts[held] = counts.get(held, 0) + 1
        return {"sets": chi_square(counts, saint_sets(ROWS, roots, 2) if saint else shadow_sets(ROWS, 0, (2, 1)))}

    return run


def two_hops(bulk: list[Any], x: np.ndarray) -> np.ndarray:
    """Aggregate x over both blocks of every mini-batch; return (mini-batches, seeds)."""
    hidden = x[np.concatenate([minibatch.vertices for minibatch in bulk])]
    for layer in range(2):
        blocks = [minibatch.blocks[layer] for minibatch in bulk]
        degrees = np.concatenate([np.diff(block.indptr) for block in blocks])
        sizes = [len(minibatch.vertices) if layer == 0 else block.num_sources for minibatch, block in zip(bulk, blocks, strict=True)]
        first = np.repeat(np.cumsum([0, *sizes[:-1]]), [block.num_edges for block in blocks])
        row, column = np.repeat(np.arange(len(degrees)), degrees), first + np.concatenate([block.indices for block in blocks])
        weights = 1 / degrees[row] if blocks[0].weights is None else np.concatenate([block.weights for block in blocks]).astype(float)
        hidden = np.bincount(row, weights * hidden[column], minlength=len(degrees))
    return hidden.reshape(len(bulk), -1)


SEEDS, X = np.array([0, 1, 4], np.int32), np.random.default_rng(20260).normal(size=len(ROWS))


@cache
def estimates(name: str, fanout: int, draws: int, seed: int, **options: Any) -> np.ndarray:
    """Return the aggregation of X over two sampled hops at SEEDS, of as many mini-batches as make so many draws: (mini-batches, seeds)."""
    sampler = samplers.make(name, (fanout, fanout), **options)
    return np.concatenate([two_hops(bulk, X) for bulk in bulks(sampler, adjacency(), np.tile(SEEDS, (draws // EACH, 1)), seed)])


def z_values(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    z: np.ndarray = (found.mean(axis=0) - expected) / (found.std(axis=0, ddof=1) / np.sqrt(len(found)))
    return z


def unbiased(name: str, fanout: int, spread: bool = False, **options: Any) -> Check:
    """Check that the mean over two hops is the full aggregation; of layer-dependent LABOR, its enumerated mean.

    With `spread`, check also that z over 200 shorter runs is standard normal (Kolmogorov and Smirnov).
    """

    def run(draws: int, seed: int) -> dict[str, float]:
        expected = aggregated(ROWS, aggregated(ROWS, X))[SEEDS]
        if options.get("layer_dependent"):
            expected = np.array([labor_two_hops(ROWS, int(v), fanout, X) for v in SEEDS])
        found = estimates(name, fanout, draws, seed, **options)
        p_values = 2 * stats.norm.sf(abs(z_values(found, expected)))
        runs = [stats.kstest(z, "norm").pvalue for z in many_z(found).T] if spread else []
        names = [*(f"vertex {v}" for v in SEEDS), *(f"z at {v}" for v in SEEDS)]
        return {what: float(p) for what, p in zip(names, [*p_values, *runs], strict=False)}

    return run


def saint_unbiased(draws: int, seed: int) -> dict[str, float]:
    """Check GraphSAINT's coefficients: the weighted sums over subgraphs of two random roots estimate means over all vertices.

    The coefficients are counted themselves, so twenty streams count and draw apart, and the test is Student's over the streams.
    """
    graph, rng, streams = adjacency(), np.random.default_rng(seed), 20
    seeds, found = np.arange(6, dtype=np.int32), []  # an even number: each epoch of the counting ends with a pair as well
    for stream in range(seed, seed + streams):
        sampler = samplers.make("saint", (1,), coverage=2000).prepared(graph, seeds, 2, Stream(stream))
        roots = np.argsort(rng.random((draws // EACH // streams, len(seeds))), axis=1)[:, :2].astype(np.int32)
        sums = np.zeros(2)
        for bulk in bulks(sampler, graph, roots, stream):
            for minibatch in bulk:
                vertices, block = minibatch.vertices, minibatch.blocks[0]
                loss = minibatch.seed_weights / sampler.counted.size
                row = np.repeat(np.arange(len(vertices)), np.diff(block.indptr))
                sums += loss @ X[vertices], np.sum(loss[row] * block.weights * X[vertices[block.indices]])
        found.append(sums / len(roots))
    expected = [X.mean(), aggregated(ROWS, X).mean()]
    return {name: float(p) for name, p in zip(("loss", "aggregation"), stats.ttest_1samp(found, expected).pvalue, strict=True)}


def many_z(found: np.ndarray) -> np.ndarray:
    """Cut estimates into 200 runs; return z of every seed vertex against the full aggregation in each: (200, seeds)."""
    expected = aggregated(ROWS, aggregated(ROWS, X))[SEEDS]
    runs = found[: len(found) // 200 * 200].reshape(200, -1, len(SEEDS))
    return np.stack([z_values(one, expected) for one in runs])


CHECKS: dict[str, Check] = {
    **{f"{law.name.lower()}, {s} of {d}": one_row(law, s, d, None)
       for law in (Law.UNIFORM, Law.RACE, Law.LABOR, Law.REPLACEMENT) for s, d in ((3, 6), (2, 9))},
    **{f"{law.name.lower()} by weight, 3 of 7": one_row(law, 3, 7, WEIGHTS) for law in (Law.RACE, Law.LABOR, Law.WEIGHTED)},
    "GraphSAGE, two rows": two_rows("sage"), "LABOR, two rows": two_rows("labor"),
    "LADIES": layer_wise("ladies"), "LADIES, squared sum": layer_wise("ladies", importance="squared_sum"), "FastGCN": layer_wise("fastgcn"),
    "GraphSAINT, walks": subgraphs("saint"), "ShaDow": subgraphs("shadow"),
    "GraphSAGE over two hops": unbiased("sage", 2), "LABOR over two hops": unbiased("labor", 2, spread=True),
    "layer-dependent LABOR, its own mean": unbiased("labor", 2, layer_dependent=True),
    "LADIES over two hops": unbiased("ladies", 4, renormalise=False), "FastGCN over two hops": unbiased("fastgcn", 5, renormalise=False),
    "GraphSAINT, coefficients": saint_unbiased,
}  # fmt: skip


SPREAD = {"LABOR over two hops": {}, "layer-dependent LABOR, its own mean": {"layer_dependent": True}}


def audited(name: str, draws: int, seed: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Run one check; return a row for each p-value, and the spread of z over 200 shorter runs of the same draws if it is LABOR."""
    began = time.process_time()
    found = CHECKS[name](draws, seed)
    rows = [{"check": name, "what": what, "p": p, "cpu_seconds": time.process_time() - began} for what, p in found.items()]
    print(f"{name:36} {', '.join(f'{what} p = {p:.3g}' for what, p in found.items())}", flush=True)
    if name not in SPREAD:
        return rows, {}
    z = many_z(estimates("labor", 2, draws, seed, **SPREAD[name]))
    largest, beyond = float(abs(z).max()), int((abs(z) > 3).sum())
    return rows, {name: {"runs": len(z), "values": z.size, "largest": largest, "beyond 3": beyond, "mean": z.mean(axis=0).tolist()}}


def audit_laws(
    draws: Annotated[int, "draws of each check; a mini-batch makes four or more"] = 1_000_000,
    seed: Annotated[int, "check i uses seed + 1000 i; fixed before the first run"] = 20261,
    processes: Annotated[int, "checks run at a time"] = 1,
) -> dict[str, Any]:
    work = [(name, draws, seed + 1000 * i) for i, name in enumerate(CHECKS)]
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        done = list(pool.map(audited, *zip(*work, strict=True)))
    rows = [row for part, _ in done for row in part]
    for row, corrected in zip(rows, holm([row["p"] for row in rows]), strict=True):
        row |= {"corrected": corrected, "holds": corrected >= LEVEL}
    spread = {name: figures for _, part in done for name, figures in part.items()}
    failed = [row["check"] for row in rows if not row["holds"]]
    return {"draws": draws, "seed": seed, "level": LEVEL, "rows": rows, "z": spread, "failed": failed}
