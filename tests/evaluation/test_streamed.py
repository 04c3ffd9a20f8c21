"""Streamed inference gives the rows of gathered inference, computes no others than are needed, and takes the memory of its formula."""

import copy
import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from communities import community_graph, dense_adjacency
from test_evaluate import model_for, share_of
from waiting import PATIENCE

from bulksample import UsageError
from bulksample.data import store
from bulksample.distributed.comm.machines import VARIABLE
from bulksample.distributed.comm.threads import SerialComm, on_threads
from bulksample.evaluation import inference
from bulksample.evaluation.evaluate import evaluate
from bulksample.evaluation.inference import exact_rows, infer_streamed, infer_with_hidden, needed_rows
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("streamed")
    for name, sparse in (("dense", False), ("sparse", True)):
        store.save(community_graph(sparse=sparse), place / name)
    return place


def block_share(folder, comm, **options):
    asked = {"fanouts": (4, 3), "hidden": 4, "threads": 1, "graph": "partitioned", "partition": "random", "model": "gcn", **options}
    return make_trainer(TrainConfig.of(**asked), folder, comm).context.view.share


@pytest.mark.parametrize("p", [1, 3])
@pytest.mark.parametrize("name", ["sage", "gcn", "gat", "sage-pool"])
@pytest.mark.parametrize("hidden", [4, 20])  # aggregates transformed rows, or raw features
def test_streamed_rows_are_gathered_rows(p, name, hidden):
    """In memory and, with a budget of one byte, in files and chunks of one entry."""
    graph = community_graph(n=120, weighted=True)
    model = model_for(graph, name, hidden=hidden, batch_norm=True).eval()

    def body(comm):
        share = share_of(graph, comm, weighted=True)
        expected = infer_with_hidden(model, share)
        for memory in (2**30, 1, 2**13):
            for found, gathered in zip(infer_streamed(model, share, memory), expected, strict=True):
                torch.testing.assert_close(torch.from_numpy(found), gathered, rtol=1e-5, atol=1e-5)

    on_threads(p, body)


@pytest.mark.parametrize(("p", "c"), [(2, 1), (4, 2)])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_block_rows_stream_too(folders, p, c, kind):
    model = model_for(community_graph(sparse=kind == "sparse"), "gcn").eval()

    def body(comm):
        share = block_share(folders / kind, comm, replication=c)
        expected, needed = infer_with_hidden(model, share)[1], needed_rows(share, share.masks["test"], 2)
        torch.testing.assert_close(torch.from_numpy(infer_streamed(model, share, 1)[1]), expected, rtol=1e-5, atol=1e-5)
        some = torch.from_numpy(infer_streamed(model, share, 2**13, needed)[1])
        test = np.flatnonzero(share.masks["test"])
        torch.testing.assert_close(some[test], expected[test], rtol=1e-5, atol=1e-5)

    on_threads(p, body)


@pytest.mark.parametrize("p", [1, 3])
def test_the_needed_rows_are_those_within_hops(p, folders):
    """Against powers of the dense adjacency."""
    graph, wanted = community_graph(), np.zeros(300, bool)
    wanted[[3, 77, 120]] = True
    reach, expected = (dense_adjacency(graph) > 0).astype(int), [wanted]
    for _ in range(2):
        expected.insert(0, expected[0] | (expected[0] @ reach > 0))

    def body(comm):
        shares = [share_of(graph, comm), block_share(folders / "dense", comm)]
        return [[share.vertices[rows] for rows in needed_rows(share, wanted[share.vertices], 2)] for share in shares]

    found = on_threads(p, body)
    for way in (0, 1):
        for layer in range(3):
            assert sorted(np.concatenate([ranks[way][layer] for ranks in found])) == np.flatnonzero(expected[layer]).tolist()
    assert 3 < expected[1].sum() < expected[0].sum() < 300


def test_only_needed_rows_are_computed():
    graph = community_graph()
    wanted = np.zeros(graph.n, bool)
    wanted[:2] = True
    model, share = model_for(graph, "sage", hidden=20).eval(), share_of(graph)
    hidden, logits = infer_streamed(model, share, 2**13, rows := needed_rows(share, wanted, 2))
    assert np.flatnonzero(logits.any(1)).tolist() == [0, 1]
    assert np.flatnonzero(hidden.any(1)).tolist() == rows[1].tolist()


def test_scores_are_the_same_where_memory_is_short():
    graph = community_graph()
    model = model_for(graph).eval()
    expected = evaluate(model, graph.name, share_of(graph), SerialComm(), "f1")

    def body(comm):
        share = share_of(graph, comm)
        found = evaluate(model, graph.name, share, comm, "f1", ("val", "test"), 2**10 if comm.rank else 2**30)
        assert share.streamed  # all ranks, because one has little memory
        return found

    assert on_threads(3, body)[0] == {name: value for name, value in expected.items() if not name.startswith("train")}
    share = share_of(graph)
    exact_rows(model, share)
    assert not share.streamed


def test_a_full_disk_is_a_sentence_on_every_rank(monkeypatch):
    """A sparse file would end the process with SIGBUS at the first row that does not fit."""
    graph = community_graph()
    model = model_for(graph)

    def full(descriptor, offset, size):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def body(comm):
        share, own = share_of(graph, comm), copy.deepcopy(model)
        with pytest.raises(UsageError, match=r"take \d+ bytes on disk, and .* has \d+ left \(No space left.*set TMPDIR"):
            infer_streamed(own, share, 1)
        assert own.training

    monkeypatch.setattr(os, "posix_fallocate", full)
    on_threads(2, body)


def test_ranks_of_one_machine_share_its_free_memory(monkeypatch):
    monkeypatch.setattr(inference, "free_memory", lambda: 24_000)
    monkeypatch.setenv(VARIABLE, "3,1")
    assert on_threads(4, inference.fair_memory) == [2000, 2000, 2000, 6000]


_RETURNED = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}  # what is freed is no longer counted
_MEASURE = """
import json, sys, threading, time
import numpy as np, torch
from bulksample import Graph
from bulksample.distributed.comm.threads import SerialComm
from bulksample.distributed.matrix.inference_memory import streamed_bytes
from bulksample.evaluation.inference import infer_streamed
from bulksample.nn.model import Gnn
from bulksample.sparse import CSR
from bulksample.views.features import Features
from bulksample.views.plain_view import WholeShare

torch.set_num_threads(1)
n, d, f, h, memory = 120_000, 8, 32, 192, int(sys.argv[1])
rng = np.random.default_rng(0)
a = CSR(np.arange(0, n * d + 1, d), np.sort(rng.integers(0, n, (n, d)), axis=1).astype(np.int32).reshape(-1), None, (n, n))
graph = Graph(a, features=rng.standard_normal((n, f)).astype(np.float32), labels=np.zeros(n, np.int64), num_classes=4)
share, model = WholeShare(graph, Features(graph), SerialComm()), Gnn("sage", [f, h, h, 4])
infer_streamed(model, share, 2**20, [np.arange(9)] * 4)  # libraries take what they keep
now = lambda: 1024 * int(next(line for line in open("/proc/self/status") if line.startswith("RssAnon")).split()[1])
before, most, done = now(), [0], threading.Event()
def watch():
    while not done.is_set():
        most[0] = max(most[0], now() - before)
        time.sleep(0.002)
watcher = threading.Thread(target=watch)
watcher.start()
infer_streamed(model, share, memory)
done.set()
watcher.join()
print(json.dumps([most[0], streamed_bytes(model.widths, n, n, d, True, memory)]))
"""


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize("memory", [340_000_000, 100_000_000])
def test_memory_is_that_of_the_formula(memory):
    """Shards of 277 MB with a chunk of up to 64 MiB beside them; or in files, and the chunk alone, which is at most its formula."""
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, str(memory)], env={**os.environ, **_RETURNED}, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    taken, predicted = json.loads(done.stdout)
    assert predicted <= 1.01 * memory
    if predicted > 2**28:
        assert taken == pytest.approx(predicted, rel=0.1)
    else:
        assert 0.2 * predicted < taken < 1.3 * predicted
