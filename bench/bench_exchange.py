"""Measure what sampling a partitioned graph sends: every policy on every grid, beside the prediction and the published formula.

The graph resembles ogbn-products: a degree-corrected block model with 2^17 vertices and about 50 neighbors each, unweighted. Each rank
samples one bulk with GraphSAGE 15,10,5 and one with LADIES 512,512,512, one mini-batch each. All grids take three to five minutes and
4 GiB on two cores. Ranks are threads, so bytes are those of a cluster, and seconds are not reported.

The benchmark stops unless all policies draw the same mini-batches and every rank sends the messages and bytes, kind by kind, that
`tests/oracles/sampling.py` predicts. A word has 4 bytes: an id or a count. A value takes two words. For each of the R GraphSAGE rows on
another rank, with d entries in its row of A:

    owner           sends 1 word and gets 1 + s words back
    rows            sends 1 word and gets 1 + d words back, once per process row; for c > 1 again within the process row
    rows-oblivious  sends nothing and gets all rows of A
    published       k b / c + k b d / c + c k b d / p words for one process, summed over layers of k b, k b s, k b s^2 rows; all
                    processes together move k b + k b d, and c k b d more for c > 1 (see `plan.traffic`). The formula
                    covers P only; LADIES also fetches rows for its edges. "With the rows asked" replaces k b s^l and d by the
                    deduplicated frontiers and the lengths of their rows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

import numpy as np
from harness import Numbers
from oracles.call_recorder import CallRecorder, predict_calls
from oracles.collectives import SENT_KINDS, tallies
from oracles.sampling import costs_of

from bulksample import CSR, LocalAdjacency, Selection, Stream, backends, digest, samplers
from bulksample.data.dcsbm import PRESETS, dcsbm
from bulksample.distributed.comm.base import Comm, SentCount
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.matrix.grid import ProcessGrid
from bulksample.distributed.matrix.layout import Layout
from bulksample.distributed.matrix.owner import OwnerAdjacency
from bulksample.distributed.matrix.spgemm15d import RowsAdjacency
from bulksample.plan.traffic import published_words
from bulksample.samplers.base import Sampler

POLICIES = ("rows-oblivious", "rows", "owner")
WORD = 4  # bytes


class Workload(NamedTuple):
    """The work of every rank: its own mini-batches from a permutation of all vertices."""

    matrix: CSR
    sampler: Sampler
    batch_size: int
    minibatches: int

    def seeds(self, rank: int) -> Selection:
        permuted = Stream(7).permutation(self.matrix.shape[0])
        ids = np.arange(rank * self.minibatches, (rank + 1) * self.minibatches)
        return Selection.of([permuted[i * self.batch_size : (i + 1) * self.batch_size] for i in ids], self.matrix.shape[0], ids)

    def sample(self, adjacency, rank: int) -> list:
        return [(m.epoch, m.id, m.digest()) for m in self.sampler.sample_bulk(adjacency, self.seeds(rank), Stream(1))]


def sent(work: Workload, ranks: int, replication: int, policy: str, layout: Layout) -> tuple[list[dict], str]:
    """Return what every rank sent, by kind, and the digest of all draws."""
    backend = backends.make("auto", 1)

    def rank(comm: Comm) -> tuple[dict, list]:
        grid = ProcessGrid(comm, replication)
        block = backend.extract_rows(work.matrix, layout.members(grid.row))
        adjacency = (
            OwnerAdjacency(grid, block, backend, layout) if policy == "owner"
            else RowsAdjacency(grid, block, backend, layout, oblivious=policy == "rows-oblivious")
        )  # fmt: skip
        before = dict(comm.tally)
        drawn = work.sample(adjacency, comm.rank)
        return {kind: SentCount(*np.subtract(comm.tally[kind], before[kind]).tolist()) for kind in SENT_KINDS}, drawn

    moved, drawn = zip(*on_threads(ranks, rank, timeout=600), strict=True)
    return list(moved), digest(triple for part in drawn for triple in part)


def over_ranks(sent_by_rank: list[dict]) -> dict[str, int]:
    """Sum one exchange over the ranks."""
    return {
        "messages": sum(rank["topology"][0] for rank in sent_by_rank),
        "bytes": sum(rank["topology"][1] for rank in sent_by_rank),
        "control_bytes": sum(rank["control"][1] for rank in sent_by_rank),
        "words": sum(rank["topology"][1] for rank in sent_by_rank) // WORD,
        "words_of_busiest_rank": max(rank["topology"][1] for rank in sent_by_rank) // WORD,
    }


def compare(work: Workload, ranks: int, replication: int, recorders: list[CallRecorder], drawn: str) -> dict:
    """Measure one grid: one row of the table."""
    layout = Layout.even(work.matrix.shape[0], ranks // replication)
    line: dict = {"ranks": ranks, "replication": replication}
    for policy in POLICIES:
        costs = costs_of(policy, ranks, replication, work.matrix, backends.make(), layout)
        foreseen = predict_calls(costs, [recorder.calls for recorder in recorders])
        measured, witness = sent(work, ranks, replication, policy, layout)
        assert witness == drawn, f"{policy} draws other minibatches than one process"
        assert measured == tallies(foreseen), f"{policy} does not send what was predicted"
        once = int(costs.first_use("squares")[0, 1].sum()) if work.sampler.name == "ladies" else 0
        line[policy] = {**over_ranks(measured), "predicted_bytes": int(foreseen[0, 1].sum()), "once_bytes": once}
    return line | published(work, ranks, replication, recorders)


def published(work: Workload, ranks: int, replication: int, recorders: list[CallRecorder]) -> dict[str, dict]:
    """Evaluate the published formula, with the rows of the paper and with the requested rows and their lengths."""
    frontier = [[call.arguments[0].vertices for call in recorder.calls if call.name.startswith("sample")] for recorder in recorders]
    asked = [sum(len(rows) for rows in layer) for layer in zip(*frontier, strict=True)]
    entries = sum(int(work.matrix.degrees[rows].sum()) for rank in frontier for rows in rank)
    layers = np.array([work.batch_size, *work.sampler.fanouts[:-1]])  # b, s, s of each minibatch layer-wise; b, b s, b s^2 node-wise
    counted = (ranks * work.minibatches * (np.cumprod(layers) if work.sampler.name == "sage" else layers)).tolist()
    found = {}
    for name, rows, degree in (
        ("published", counted, work.matrix.nnz / work.matrix.shape[0]),
        ("published_for_rows_asked", asked, entries / sum(asked)),
    ):
        ids, data, reduced = published_words(ranks, replication, rows, degree)
        moved = replication * (ids + data) + ranks * reduced * (replication > 1)  # an all-reduce of one process moves none
        found[name] = {"words": moved, "words_per_process": ids + data + reduced, "rows_per_layer": rows, "degree": degree}
    return found


def run(work: Workload, all_ranks: Sequence[int]) -> list[dict]:
    lines = []
    for ranks in all_ranks:
        recorders = [CallRecorder(LocalAdjacency(work.matrix, backends.make())) for _ in range(ranks)]
        drawn = digest(triple for r, recorder in enumerate(recorders) for triple in work.sample(recorder, r))
        for replication in (c for c in range(1, ranks + 1) if ranks % c == 0):
            lines.append(compare(work, ranks, replication, recorders, drawn))
            print(table_line(lines[-1]), flush=True)
    if any(line["owner"]["once_bytes"] for line in lines):
        once = (f"{line['ranks']}, {line['replication']}: {line['owner']['once_bytes'] / WORD / 1e6:.2f}" for line in lines)
        print(f"\nSent once for a graph and not in the table: column blocks of `owner`, with column counts, by p, c: {'; '.join(once)}.")
    return lines


HEADER = """
| p | c | rows-oblivious | rows | owner | predicted | rows / owner | published | per process | with the rows asked |
|--:|--:|--:|--:|--:|:-:|--:|--:|--:|--:|"""


def table_line(line: dict) -> str:
    """Format millions of words over all ranks, without what is sent once."""
    words = {policy: (line[policy]["bytes"] - line[policy]["once_bytes"]) / WORD / 1e6 for policy in POLICIES}
    equal = all(line[policy]["bytes"] == line[policy]["predicted_bytes"] for policy in POLICIES)
    ratio = f"{words['rows'] / words['owner']:.1f}" if words["owner"] else "∞"
    cells = [line["ranks"], line["replication"], *(f"{words[policy]:.2f}" for policy in POLICIES), "equal" if equal else "differs", ratio]
    published = (line["published"]["words"], line["published"]["words_per_process"], line["published_for_rows_asked"]["words"])
    cells += [f"{words / 1e6:.2f}" for words in published]
    return f"| {' | '.join(map(str, cells))} |"


def exchange(
    scale: Annotated[int, "the graph has 2^scale vertices"] = 17,
    degree: Annotated[int, "mean degree of the model; about 50 remain after duplicates are dropped"] = 73,
    ranks: Numbers = (4, 8, 16), sage_batch: int = 1024, ladies_batch: int = 512,
    minibatches: Annotated[int, "mini-batches per rank, in one bulk"] = 1,
) -> dict[str, Any]:  # fmt: skip
    matrix = like_products(scale, degree)
    sizes = {"vertices": matrix.shape[0], "edges": matrix.nnz, "mean_degree": matrix.nnz / matrix.shape[0]}
    sizes |= {"longest_row": int(matrix.degrees.max()), "minibatches_per_rank": minibatches}
    print(json.dumps(sizes))
    works = {
        f"GraphSAGE 15,10,5, batch {sage_batch}": (samplers.make("sage", (15, 10, 5)), sage_batch),
        f"LADIES 512,512,512, batch {ladies_batch}": (samplers.make("ladies", (512, 512, 512)), ladies_batch),
    }
    results = {}
    for name, (sampler, batch_size) in works.items():
        print(f"\n{name}: million words of 4 bytes\n{HEADER}")
        results[name] = run(Workload(matrix, sampler, batch_size, minibatches), ranks)
    return {**sizes, "results": results}


def like_products(scale: int, degree: int) -> CSR:
    """Return the adjacency of the block model that resembles ogbn-products, with 2^scale vertices."""
    return dcsbm(2**scale, degree, replace(PRESETS["products"], features=0), seed=1).adjacency
