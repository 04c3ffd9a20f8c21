"""A graph in memory trains by methods that divide it over ranks, as its store does."""

import gc
import tempfile

import pytest
from communities import community_graph

import bulksample as bs
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.run import train

DIVIDED = [{"method": method} for method in ("grappa", "cofree", "full")]
DIVIDED += [{"method": "sync", "features": where} for where in ("host", "partitioned")]
SMALL = {"epochs": 1, "fanouts": [3, 3], "batch_size": 64, "hidden": 8, "quiet": True}


@pytest.fixture
def graph():
    return community_graph(n=120)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder for temporary files."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path / "temporary"


@pytest.mark.parametrize("options", DIVIDED, ids=lambda options: "-".join(options.values()))
def test_a_graph_in_memory_trains_as_its_store(graph, folder, tmp_path, options):
    graph.save(tmp_path / "g")
    losses = [[made["train_loss"] for made in on_threads(2, lambda comm, s=source: train(s, comm=comm, **SMALL, **options))]
              for source in (graph, tmp_path / "g")]  # fmt: skip
    assert losses[0] == losses[1]
    gc.collect()
    assert not list(folder.iterdir())


def test_each_machine_writes_one_store(graph, folder, monkeypatch):
    monkeypatch.setenv("BULKSAMPLE_MACHINES", "2,1")
    seen = []

    class Looks(bs.Callback):
        def begin(self, epoch, epochs, steps):
            seen.extend(folder.glob("*/graph/manifest.json"))

    on_threads(3, lambda comm: train(graph, comm=comm, callbacks=[Looks()], **{**SMALL, "method": "full"}))
    assert len(seen) == 2


def test_a_disk_that_cannot_be_written_is_named_on_every_rank(graph, folder):
    folder.rmdir()

    def refused(comm):
        with pytest.raises(bs.UsageError, match="No such file"):
            train(graph, comm=comm, **{**SMALL, "method": "full"})

    on_threads(2, refused)
