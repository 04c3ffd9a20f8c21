"""Predict what owners of relations would send in windows of time if answers lay in rooms of known lengths, over lengths sent ahead.

Rooms save a collective a hop and 4 bytes a row, but a room is as long as its row draws without a window of time, and a window may hold few
edges. So `HopForm.of` has rooms in windows only where all relations are padded; here each hop takes both forms, whatever it chooses. The
graph is that of `data make hetero --times 10000`. Seeds are papers, asked about when half of the times are over; windows hold all earlier
times or a share of all. Nothing is sent: bytes are those that `tests/oracles/relations.py` predicts, which tests hold against ranks. Below
one, rooms send less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Annotated, Any

import numpy as np
from oracles.relations import HopRecorder, predict_counts, predict_hops

from bulksample import Stream, backends, samplers
from bulksample.backends.relational import RelationLaw
from bulksample.data.hetero import hetero, papers
from bulksample.distributed.matrix.layout import Layout
from bulksample.distributed.matrix.requests import HopForm, HopRules, RelationFacts
from bulksample.graph import Graph
from bulksample.graph.seed_list import SeedList
from bulksample.samplers.time_rule import TimeRule

TIMES = 10_000
FANOUTS = ((5, 3), (10, 5), (15, 10), (30, 30))
WINDOWS = {"all earlier times": None, "a quarter of the times": TIMES // 4, "a tenth of the times": TIMES // 10}
Hops = list[list[Any]]


class InRooms(HopRecorder):
    """Relations whose owners answer in rooms."""

    def form(self, facts: Sequence[RelationFacts], laws: Sequence[RelationLaw], rules: HopRules) -> HopForm:
        return super().form(facts, laws, rules)._replace(ragged=False)


class LengthsAhead(HopRecorder):
    """Relations whose owners send the length of each row ahead of the answers."""

    def form(self, facts: Sequence[RelationFacts], laws: Sequence[RelationLaw], rules: HopRules) -> HopForm:
        return super().form(facts, laws, rules)._replace(ragged=True)


def recorded(
    kind: type[HopRecorder], graph: Graph, fanouts: tuple[int, ...], window: int | None, ranks: int, seeds: int, entries: bool
) -> Hops:  # fmt: skip
    """Return the hops of one mini-batch of each rank."""
    sampler = replace(samplers.make("sage", fanouts), time=TimeRule(window=window), stride=seeds, entries=entries)
    chosen = np.random.default_rng(1).integers(0, graph.type("paper").count, ranks * seeds)
    listed, hops = SeedList.of(graph, ("paper", chosen), np.full(len(chosen), TIMES // 2)), Hops()
    for rank in range(ranks):
        recorder = kind(graph, backends.make())
        sampler.sample_bulk(recorder, listed.select([np.arange(rank * seeds, (rank + 1) * seeds)], np.array([rank])), Stream(1), 0)
        hops.append(recorder.hops)
    return hops


def row(graph: Graph, fanouts: tuple[int, ...], window: int | None, ranks: int, seeds: int, entries: bool) -> dict[str, int | float]:
    """Return the bytes of a mini-batch on each rank in both forms, what rooms send once, and the quotient."""
    layouts = [Layout.even(kind.count, ranks) for kind in graph.types]
    rooms, lengths = (recorded(kind, graph, fanouts, window, ranks, seeds, entries) for kind in (InRooms, LengthsAhead))
    sent = {"rooms": predict_hops(rooms, layouts, 1), "lengths": predict_hops(lengths, layouts, 1)}
    found = {name: int(of[0, 1].sum()) for name, of in sent.items()}
    return {**found, "once": int(predict_counts(rooms[0], layouts, 1)[0, 1].sum()), "quotient": found["rooms"] / found["lengths"]}


def answer_rooms(
    scale: Annotated[float, "million papers"] = 0.02, ranks: int = 4, seeds: Annotated[int, "seeds of a mini-batch"] = 512
) -> dict[str, Any]:
    graph, rows = hetero(*papers(scale), times=TIMES, seed=1), []
    for entries, fanouts, (name, window) in product((False, True), FANOUTS, WINDOWS.items()):
        rows.append({"fanouts": fanouts, "window": name, "entries": entries, **row(graph, fanouts, window, ranks, seeds, entries)})
        print(f"{fanouts!s:>9}  {name:<24}{'with entries' if entries else '':<14}{rows[-1]['quotient']:.2f}", flush=True)
    return {"scale": scale, "ranks": ranks, "seeds": seeds, "rows": rows}
