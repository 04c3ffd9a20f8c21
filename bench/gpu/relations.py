"""Relations on a card, for the benchmark: mini-batches as on this machine's processors, edges a second, epochs of training."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bulksample import Graph, Stream, samplers
from bulksample.backends.cuda.relations import expand_relations
from bulksample.data.hetero import hetero, papers
from bulksample.graph.seed_list import SeedList
from bulksample.local_adjacency import LocalAdjacency
from bulksample.samplers import Sampler
from bulksample.samplers.time_rule import TimeRule

FANOUTS = (15, 10)
SPAN = 1000  # times of papers
RULES = {"static": None, "in time": TimeRule(), "the newest": TimeRule(strategy="last")}


def relations(bench: Any) -> dict[str, Any]:
    """Draw on four types and seven relations with and without time, then train.

    Digests of four mini-batches are compared; edges a second count bulks of 32, which stay on the device. Epochs are those of two-layer
    models after a warm-up, fp32 and tf32.
    """
    types, sizes = papers(bench.sizes.papers)
    graph = hetero(types, sizes, features=bench.sizes.features, classes=16, times=SPAN, seed=1)
    found: dict[str, Any] = {"edges": sum(relation.edges for relation in graph.relations), "differ": []}
    for name, rule in RULES.items():
        found["differ"] += [] if _alike(bench, graph, rule) else [name]
    found["alike"] = not found["differ"]
    found["sampling"] = {name: _sampling(bench, graph, rule) for name, rule in RULES.items()}
    return {**found, "training": _training(bench, graph)}


def _asked(bench: Any, graph: Graph, rule: TimeRule | None, k: int) -> tuple[Sampler, Any]:
    """Return a sampler, and the seeds of at most k mini-batches."""
    b, count = bench.sizes.batch, graph.types[0].count
    k = max(1, min(k, count // b))
    chosen = np.random.default_rng(0).permutation(count)[: k * b]
    listed = SeedList.of(graph, {graph.types[0].name: chosen}, None if rule is None else np.full(len(chosen), 3 * SPAN // 4))
    return replace(samplers.make("sage", FANOUTS), time=rule, stride=b), listed.select(np.array_split(np.arange(len(chosen)), k))


def _alike(bench: Any, graph: Graph, rule: TimeRule | None) -> bool:
    sampler, seeds = _asked(bench, graph, rule, 4)
    engines = (bench.engine, bench.host)
    drawn = [sampler.sample_bulk(LocalAdjacency(graph, engine, by_type=True), seeds, Stream(1)) for engine in engines]
    got, expected = ([one.digest() for one in bulk] for bulk in drawn)
    return got == expected


def _sampling(bench: Any, graph: Graph, rule: TimeRule | None) -> dict[str, Any]:
    sampler, seeds = _asked(bench, graph, rule, 32)
    adjacency, by = LocalAdjacency(graph, bench.engine, by_type=True), None if rule is None else "vertices"
    asked: list[tuple[Any, ...]] = []
    adjacency.expand_trees = lambda trees, laws, *more: asked.append((trees, laws)) or []  # type: ignore[assignment, method-assign]
    sampler.sample_bulk(adjacency, seeds, Stream(1))
    relations, counts = adjacency.relations(by), [kind.count for kind in graph.types]

    def draw() -> Any:
        return expand_relations(bench.device, counts, relations, *asked[0], False)

    edges = sum(len(hop.columns) for hop in draw().hops)
    seconds = bench.median(draw)
    return {"minibatches": len(seeds), "edges": edges, "seconds": seconds, "edges_per_second": edges / seconds["median"]}


def _training(bench: Any, graph: Graph) -> dict[str, Any]:
    from bulksample.methods.config import TrainConfig
    from bulksample.methods.run import make_trainer

    found, common = {}, {"fanouts": FANOUTS, "hidden": bench.sizes.hidden, "batch_size": bench.sizes.batch, "epochs": 2, "quiet": True}
    for model, precision in (("hetero-sage", "fp32"), ("hetero-sage", "tf32"), ("hetero-gat", "fp32")):
        config = TrainConfig.of(**common, model=model, evaluate="none")
        trainer = make_trainer(config, graph, compute=bench.context(precision))
        report = trainer.run()
        told = {key: report[key] for key in ("waiting_share", "features_on", "bulk_size")}
        found[f"{model}, {precision}"] = {"seconds": trainer.epoch_seconds[1:], "loss": report["train_loss"], **told}
    return found
