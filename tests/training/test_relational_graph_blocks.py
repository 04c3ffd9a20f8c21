"""Heterogeneous training with relations in block rows: the run of one rank, from memory and from a store."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from launch import run_ranks
from planted_relations import planted, without_parallel_edges
from recorder import Recorder
from sweeps import sweep
from waiting import PATIENCE

from bulksample import DataError, UsageError
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer

QUICK = {
    "model": "hetero-sage", "fanouts": (4, 3), "hidden": 8, "epochs": 2, "batch_size": 12, "dropout": 0.0, "threads": 1, "lr": 0.01,
    "topology": "partitioned", "features": "partitioned",
}  # fmt: skip
GRIDS = [(2, 1), pytest.param(4, 1, marks=pytest.mark.long), pytest.param(4, 2, marks=pytest.mark.long)]


def trained(source, comm=None, **options):
    recorder = Recorder()
    made = make_trainer(TrainConfig.of(**{**QUICK, **options}), source, comm, [recorder])
    return SimpleNamespace(report=made.run(), losses=recorder.losses, trainer=made)


def digests(source, comm=None, **options):
    made = make_trainer(TrainConfig.of(**{**QUICK, "epochs": 1, **options}), source, comm)
    return [batch.minibatch and batch.minibatch.digest() for batch in made.context.batches]


@pytest.mark.long
@sweep("options", [
    {"sampler": "labor", "partition": "random"}, {"times": True, "strict": True, "features": "replicated"},
    {"exchange": "rows", "times": True}, {}, {"sampler": "full"},
    {"times": True, "strategy": "last", "evaluate": "sampled"}, {"exchange": "rows-oblivious"},
], quick=3, ids=str)  # fmt: skip
@pytest.mark.parametrize(("p", "c"), GRIDS)
def test_a_graph_in_block_rows_trains_as_a_whole_one(p, c, options, tmp_path):
    graph, asked = planted(times="times" in options), {name: value for name, value in options.items() if name != "times"}
    graph = without_parallel_edges(graph) if "sampler" in options else graph
    graph.save(tmp_path / "store")
    alone = {**asked, "topology": None, "partition": "block", "features": None, "exchange": "owner"}
    whole = on_threads(p, lambda comm: trained(graph, comm, **alone))[0]
    for source in (graph, tmp_path / "store"):
        divided = on_threads(p, lambda comm, source=source: trained(source, comm, replication=c, **asked))
        assert divided[0].losses == pytest.approx(whole.losses, rel=1e-5)
        assert divided[0].report["val_accuracy"] == whole.report["val_accuracy"]
        assert divided[0].report["graph"] == ("partitioned+replicated" if "features" in options else "partitioned")
        if source is not graph:
            assert divided[0].trainer.context.view.fingerprint == whole.trainer.context.view.fingerprint
    drawn = [on_threads(p, lambda comm, o=o: digests(graph, comm, **o)) for o in ({**asked, "replication": c}, alone)]
    assert drawn[0] == drawn[1]
    assert len({one for own in drawn[0] for one in own if one}) == 5


def test_each_rank_holds_its_rows_and_reads_no_others(tmp_path):
    graph = planted(edge_times=True)
    graph.save(tmp_path / "store")
    views = on_threads(4, lambda comm: trained(tmp_path / "store", comm, seed_times="asked", epochs=0).trainer.context.view)
    for place, relation in enumerate(graph.relations):
        held = [view.adjacency.relations("edges")[place] for view in views]
        assert (np.concatenate([own.matrix.indices for own in held]) == relation.adjacency.indices).all()
        assert max(own.matrix.shape[0] for own in held) == -(-relation.adjacency.shape[0] // 4)
        if relation.times is not None:
            assert (np.concatenate([own.times for own in held]) == relation.times).all()
    whole = sum(relation.adjacency.nbytes() for relation in graph.relations)
    assert max(view.memory["adjacency"] for view in views) < 0.7 * whole  # times of edges included


def test_a_cache_counts_the_edges_of_all_ranks():
    options = {"cache_bytes": 300, "evaluate": "none", "epochs": 1}
    parts = [
        on_threads(2, lambda comm, g=g: trained(planted(), comm, topology=g, **options))[0].report["bytes_sent"]
        for g in ("replicated", "partitioned")
    ]
    assert parts[0]["features"] == parts[1]["features"] > 0
    assert parts[1]["topology"] > parts[0]["topology"]


def test_a_run_goes_on_with_the_relations_whole_and_again_in_block_rows(tmp_path):
    graph, kept = planted(times=True), tmp_path / "kept"
    whole = on_threads(2, lambda comm: trained(graph, comm, epochs=3, features="replicated"))[0].report
    for epochs, placed in ((1, "partitioned"), (2, "replicated"), (3, "partitioned")):
        options = {"topology": placed, "features": "replicated", "resume": "auto" if epochs > 1 else None}
        run = on_threads(2, lambda comm, e=epochs, o=options: trained(graph, comm, epochs=e, checkpoint=str(kept), **o))[0].report
    assert run["train_loss"] == whole["train_loss"]


def test_damaged_rows_of_a_store_are_refused_on_every_rank(tmp_path):
    """The hashes are not looked at, so the rank that reads the rows finds the column that is no vertex."""
    planted().save(tmp_path / "store")
    manifest = json.loads((tmp_path / "store" / "manifest.json").read_text())
    path = tmp_path / "store" / manifest["arrays"]["relations.0.indices"]["file"]
    columns = np.load(path)
    columns[-1] = 4000
    np.save(path, columns)
    with pytest.raises(DataError, match=r"rank 1: relation author:writes:paper: in a block row: .* names column 4000"):
        on_threads(2, lambda comm: trained(tmp_path / "store", comm, check="none"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"exchange": "rows", "topology": "replicated"}, "exchange is for a topology in block rows; got rows"),
        ({"sampler": "ladies"}, "read whole relations; got a topology in block rows: use sage, labor or full"),
        ({"seed_locality": 3, "partition": "stream"}, "seed_locality 3 makes 3 parts by stream, which p / c = 2 block rows cannot share"),
        ({"replication": 3}, "replication must divide the number of ranks: got c = 3 with p = 2"),
        ({"topology": None, "features": None, "graph": "partitioned", "seed_times": "asked"}, "graph 'planted' has no times"),
    ],
)
def test_what_does_not_work_is_refused_by_name(options, message):
    with pytest.raises(UsageError, match=message):
        on_threads(2, lambda comm: trained(planted(), comm, **options))


@pytest.mark.long
def test_processes_of_mpirun_train_as_threads(tmp_path):
    planted(times=True).save(tmp_path / "store")
    threads = on_threads(4, lambda comm: trained(tmp_path / "store", comm, replication=2))[0].report
    line = ["-m", "bulksample", "train", str(tmp_path / "store"), "--quiet", "--json", str(tmp_path / "run.json")]
    line += ["--timeout", str(PATIENCE)]
    line += ["--model", "hetero-sage", "--fanouts", "4,3", "--hidden", "8", "--epochs", "2", "--batch-size", "12", "--dropout", "0"]
    line += ["--threads", "1", "--lr", "0.01", "--graph", "partitioned", "--replication", "2"]
    ended = run_ranks(4, line)
    assert ended.code == 0, ended
    found = json.loads((tmp_path / "run.json").read_text())
    assert [found[key] for key in ("train_loss", "val_accuracy", "held_bytes")] == [
        threads[key] for key in ("train_loss", "val_accuracy", "held_bytes")
    ]
    kinds = ("topology", "features", "activations", "gradients", "model")  # control messages name folders and processes
    assert [found["bytes_sent"][kind] for kind in kinds] == [threads["bytes_sent"][kind] for kind in kinds]
    sent = run_ranks(4, [*line, "--exchange", "rows", "--overwrite"])
    assert sent.code == 0, sent
    by_rows = json.loads((tmp_path / "run.json").read_text())
    assert [by_rows[key] for key in ("train_loss", "val_accuracy")] == [found[key] for key in ("train_loss", "val_accuracy")]
    assert by_rows["bytes_sent"]["topology"] != found["bytes_sent"]["topology"]
