"""Measure the messages of partitioned sampling on many ranks: collectives a hop, bytes beside the prediction, CPU time of a tiny hop.

Four parts, on a degree-corrected block model of 2^15 vertices:

- ranks as threads, and ranks as processes under mpirun: each samples one bulk of two mini-batches with GraphSAGE 15,10,5. The benchmark
  stops unless the digests are those of one process, and every rank sends the bytes and messages that `tests/oracles` predicts.
- the same ranks sample a bulk of ten mini-batches and fetch their features, the ids of the bulk in one exchange or of each mini-batch in
  its own. The benchmark stops unless the rows are those of the matrix, and bytes and messages those predicted.
- a hop of one rank of 128 on a mirrored communicator: each message comes back to its sender, whose "block row" is the whole graph, so the
  hop gives correct picks and costs the CPU time of one rank without a transport. Picks are compared with those of one process.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from harness import call, summary
from oracles.call_recorder import CallRecorder, predict_calls
from oracles.collectives import SENT_KINDS, tallies
from oracles.fetches import predict_fetches
from oracles.sampling import costs_of
from ranks import mpirun

from bulksample import CSR, LocalAdjacency, Selection, Stream, backends, digest, samplers
from bulksample.data.dcsbm import PRESETS, dcsbm
from bulksample.distributed.comm.base import Comm, SentCount
from bulksample.distributed.comm.network_probe import MirrorComm
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.comm.world import world
from bulksample.distributed.matrix.feature_exchange import RowExchange
from bulksample.distributed.matrix.grid import ProcessGrid
from bulksample.distributed.matrix.layout import Layout
from bulksample.distributed.matrix.owner import OwnerAdjacency
from bulksample.rng import Law

FANOUTS, BATCH, BULK = (15, 10, 5), 16, 2
FETCHED, WIDTH = 10, 8  # mini-batches of the bulk whose features are fetched, and features


def graph() -> CSR:
    """Return the adjacency of the benchmark."""
    return dcsbm(2**15, 30, replace(PRESETS["products"], features=0), seed=1).adjacency.with_values(None)


def seeds_of(rank: int, n: int, bulk: int = BULK) -> Selection:
    """Return the mini-batches of a rank."""
    order, ids = Stream(7).permutation(n), rank * bulk + np.arange(bulk)
    return Selection.of([order[i * BATCH : (i + 1) * BATCH] for i in ids], n, ids)


def sampled(comm: Comm, matrix: CSR) -> dict[str, Any]:
    """Sample the bulk of this rank on a p x 1 grid; return digests, what was sent by kind, and collectives."""
    grid, layout = ProcessGrid(comm, 1), Layout.even(matrix.shape[0], comm.size)
    first, last = (int(bound) for bound in layout.bounds[comm.rank : comm.rank + 2])
    block = matrix.take(np.arange(first, last))
    adjacency = OwnerAdjacency(grid, block, backends.make("auto", 1), layout)
    adjacency.padded(0)  # what the first call makes once
    before, calls = dict(comm.tally), dict(comm.collectives)
    minibatches = samplers.make("sage", FANOUTS).sample_bulk(adjacency, seeds_of(comm.rank, matrix.shape[0]), Stream(1))
    return {
        "digests": [(0, m.id, m.digest()) for m in minibatches],
        "sent": {kind: np.subtract(comm.tally[kind], before[kind]).tolist() for kind in SENT_KINDS},
        "collectives": sum(comm.collectives.values()) - sum(calls.values()),
    }


def checked(found: list[dict[str, Any]], matrix: CSR) -> dict[str, Any]:
    """Compare the digests with those of one process and the counts with the prediction; return both as figures."""
    p, n, backend = len(found), matrix.shape[0], backends.make("auto", 1)
    recorders, alone = [CallRecorder(LocalAdjacency(matrix, backend)) for _ in range(p)], []
    for rank, recorder in enumerate(recorders):
        drawn = samplers.make("sage", FANOUTS).sample_bulk(recorder, seeds_of(rank, n), Stream(1))
        alone += [(0, m.id, m.digest()) for m in drawn]
    costs = costs_of("owner", p, 1, matrix, backend, Layout.even(n, p))
    predicted = tallies(predict_calls(costs, [recorder.calls for recorder in recorders]) - costs.first_rows())
    spread = digest(tuple(one) for rank in found for one in rank["digests"])
    equal = {
        "digests_equal": spread == digest(alone),
        "counts_as_predicted": [{k: SentCount(*v) for k, v in rank["sent"].items()} for rank in found] == predicted,
    }
    if not all(equal.values()):
        raise SystemExit(f"{p} ranks: {equal}")
    totals = {kind: np.sum([rank["sent"][kind] for rank in found], axis=0).tolist() for kind in SENT_KINDS}
    return {
        "ranks": p, **equal, "collectives_a_hop": max(rank["collectives"] for rank in found) / len(FANOUTS),
        "messages": sum(messages for messages, _ in totals.values()), "bytes": {kind: sent for kind, (_, sent) in totals.items()},
    }  # fmt: skip


def fetched(comm: Comm, matrix: CSR, by_bulk: bool) -> dict[str, Any]:
    """Sample a bulk of this rank and fetch its features; return the vertices, what the fetches sent, and all collectives."""
    n, grid = matrix.shape[0], ProcessGrid(comm, 1)
    layout = Layout.even(n, comm.size)
    first, last = (int(bound) for bound in layout.bounds[comm.rank : comm.rank + 2])
    adjacency = OwnerAdjacency(grid, matrix.take(np.arange(first, last)), backends.make("auto", 1), layout)
    adjacency.padded(0)  # what the first call makes once
    whole = (np.arange(n, dtype=np.float32) * 3 % 1013)[:, None] + np.arange(WIDTH, dtype=np.float32)
    exchange = RowExchange(comm, layout.bounds, whole[first:last])
    calls = sum(comm.collectives.values())
    drawn = samplers.make("sage", FANOUTS).sample_bulk(adjacency, seeds_of(comm.rank, n, FETCHED), Stream(1))
    vertices, before = [minibatch.vertices for minibatch in drawn], dict(comm.tally)
    begin = exchange.ask(vertices) if by_bulk else [partial(exchange.start, ids) for ids in vertices]
    for one, ids in zip(begin, vertices, strict=True):
        np.testing.assert_array_equal(one().wait(), whole[ids])
    kinds = ("topology", "features", "control")
    sent = {kind: np.subtract(comm.tally[kind], before[kind]).tolist() for kind in kinds}
    return {"vertices": vertices, "sent": sent, "collectives": sum(comm.collectives.values()) - calls}


def fetches(ranks: int, matrix: CSR) -> dict[str, Any]:
    """Compare ids that travel once a bulk with ids once a mini-batch; counts are of all ranks, or of one and a mini-batch."""
    bounds, found = Layout.even(matrix.shape[0], ranks).bounds, {}
    for name in ("by_minibatch", "by_bulk"):
        of_ranks = on_threads(ranks, lambda comm, by=name == "by_bulk": fetched(comm, matrix, by), timeout=600)
        asked = [own["vertices"] for own in of_ranks]
        groups = [asked] if name == "by_bulk" else [[[own[i]] for own in asked] for i in range(FETCHED)]
        predicted = [predict_fetches(1, group, bounds, WIDTH) for group in groups]
        for rank, own in enumerate(of_ranks):
            expected = {kind: np.sum([one[rank][kind] for one in predicted], axis=0).tolist() for kind in own["sent"]}
            if own["sent"] != expected:
                raise SystemExit(f"rank {rank} of {ranks} sent {own['sent']}, not {expected}")
        totals = {kind: np.sum([own["sent"][kind] for own in of_ranks], axis=0).tolist() for kind in of_ranks[0]["sent"]}
        found[name] = {
            "collectives_a_minibatch": of_ranks[0]["collectives"] / FETCHED, "messages": sum(messages for messages, _ in totals.values()),
            "bytes": {kind: sent for kind, (_, sent) in totals.items()},
        }  # fmt: skip
    return {"ranks": ranks, "minibatches_in_a_bulk": FETCHED, **found}


class MirroredGrid:
    """A process column of one mirrored communicator."""

    def __init__(self, size: int) -> None:
        self.column_comm = self.row_comm = self.comm = MirrorComm(size)
        self.row, self.rows, self.replication = 0, size, 1


def mirrored(matrix: CSR, ranks: int, rows: int, rounds: int) -> dict[str, Any]:
    """Time a hop of fanout 10 of `rows` rows in two mini-batches on `ranks` mirrored ranks; CPU milliseconds."""
    n, backend = matrix.shape[0], backends.make("auto", 1)
    layout = Layout.even(n, ranks)
    adjacency = OwnerAdjacency(MirroredGrid(ranks), matrix.take(np.arange(layout.bounds[1])), backend, layout)  # type: ignore[arg-type]
    adjacency.block, adjacency.first = matrix, 0
    order = Stream(3).permutation(n)[:rows]
    q, draw = Selection.of(np.split(order, [rows // 2]), n), Stream(1).draw(Law.UNIFORM, layer=0, epoch=0)
    alone = LocalAdjacency(matrix, backend)
    for own, its in zip(adjacency.sample_rows(q, 10, draw), alone.sample_rows(q, 10, draw), strict=True):
        np.testing.assert_array_equal(own, its)
    comm = adjacency.grid.column_comm
    before = sum(comm.collectives.values())
    adjacency.sample_rows(q, 10, draw)
    collectives = sum(comm.collectives.values()) - before
    spread, within = (processor_ms(partial(one.sample_rows, q, 10, draw), rounds) for one in (adjacency, alone))
    return {"ranks": ranks, "rows": rows, "collectives": collectives, "hop_ms": spread, "one_process_ms": within}


def processor_ms(work: Callable[[], Any], rounds: int) -> dict[str, float]:
    """Return median, minimum and maximum CPU milliseconds of a call, over rounds of ten calls."""
    found = []
    for _ in range(rounds + 1):  # the first warms up
        began = time.process_time()
        for _ in range(10):
            work()
        found.append((time.process_time() - began) * 100)
    return summary(found[1:])


def process_rank() -> None:
    """Run one rank of the part with processes; rank 0 prints what all have found."""
    with world(300) as comm:
        everyone = comm.gather_control(sampled(comm, graph()))
        if comm.rank == 0:
            print(json.dumps(everyone))


def messages(threads: int = 128, processes: int = 32, rounds: int = 15) -> dict[str, Any]:
    matrix = graph()
    results: dict[str, Any] = {"mirrored_hops": [mirrored(matrix, 128, rows, rounds) for rows in (64, 1024, 16_384)]}
    results["fetches"] = fetches(threads, matrix)
    results["threads"] = checked(on_threads(threads, lambda comm: sampled(comm, matrix), timeout=600), matrix)
    if processes:
        command = [mpirun(), "-n", str(processes), *call(process_rank)]
        ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=900)
        results["processes"] = checked(json.loads(ended.stdout), matrix)
    return results
