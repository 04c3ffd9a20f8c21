"""Links on relations with rows and features of other ranks: the mini-batches, the losses and the scores of one rank."""

import json
from dataclasses import replace

import pytest
from launch import run_ranks
from planted_relations import shop
from recorder import Recorder
from sweeps import sweep
from waiting import PATIENCE

from bulksample import DataError
from bulksample.data.link_split import hold_out
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer

BUYS, KNOWS = ("user", "buys", "item"), ("user", "knows", "user")
QUICK = {
    "model": "hetero-sage", "task": "links", "fanouts": (4, 3), "hidden": 8, "epochs": 1, "batch_size": 16, "dropout": 0.0, "threads": 1,
    "quiet": True,
}  # fmt: skip
GRIDS = [(2, 1), pytest.param(4, 1, marks=pytest.mark.long), pytest.param(4, 2, marks=pytest.mark.long)]


def trained(source, comm=None, **options):
    recorder = Recorder()
    made = make_trainer(TrainConfig.of(**{**QUICK, **options}), source, comm, [recorder])
    return recorder.losses, made.run(), made


def digests(source, comm=None, **options):
    made = make_trainer(TrainConfig.of(**{**QUICK, **options}), source, comm)
    return [(one.seeds.tolist(), one.digest()) for one in made.context.batches.loader if one is not None]


def scores_of(report):
    return {name: value for name, value in report.items() if name.startswith(("val_", "test_")) and value is not None}


@sweep("options", [
    {"edge_times": True, "exclude_targets": "both"}, {"times": True, "partition": "random"}, {"features": "replicated", "decoder": "mlp"},
    {"relation": KNOWS, "edge_times": True, "partition": "random", "strict": True},
    {"edge_times": True, "exchange": "rows"},
], quick=2, ids=str)  # fmt: skip
@pytest.mark.parametrize(("p", "c"), GRIDS)
def test_links_in_block_rows_train_as_on_whole_relations(p, c, options, tmp_path):
    asked = dict(options)
    whole_graph = shop(**{name: asked.pop(name) for name in ("times", "edge_times") if name in asked})
    graph = hold_out(whole_graph, asked.pop("relation", BUYS), 0.1, 0.2, 8, seed=0)
    graph.save(tmp_path / "store")
    alone = {**asked, "partition": "block", "features": None, "exchange": "owner"}
    whole = on_threads(p, lambda comm: trained(graph, comm, **alone))[0]
    placed = {"topology": "partitioned", "features": "partitioned", "replication": c, **asked}
    for source in (graph, tmp_path / "store"):
        losses, report = on_threads(p, lambda comm, source=source: trained(source, comm, **placed))[0][:2]
        assert losses == pytest.approx(whole[0], rel=1e-5)
        assert scores_of(report) == pytest.approx(scores_of(whole[1]), rel=1e-4)
    drawn = [on_threads(p, lambda comm, o=o: digests(graph, comm, **o)) for o in (placed, alone)]
    assert drawn[0] == drawn[1]


def without_item_features(graph):
    user, item = graph.types
    return replace(graph, types=(user, replace(item, features=None)))


@pytest.mark.long
def test_embeddings_of_an_end_lie_in_block_rows_and_a_run_goes_on_from_its_checkpoint(tmp_path):
    graph = hold_out(without_item_features(shop(edge_times=True)), BUYS, 0.1, 0.2, 8, seed=0)
    placed = {"topology": "partitioned", "features": "partitioned", "epochs": 2}
    whole = on_threads(2, lambda comm: trained(graph, comm, epochs=2))[0]
    ran = on_threads(2, lambda comm: trained(graph, comm, **placed))
    assert ran[0][0] == pytest.approx(whole[0], rel=1e-5)
    assert ran[0][1]["parameters"] == whole[1]["parameters"]
    shards = [made.model.shards["encoder.inputs.1.weight"] for _, _, made in ran]
    assert [tuple(shard.shape) for shard in shards] == [(20, 8), (20, 8)]
    kept = {**placed, "checkpoint": str(tmp_path)}
    first = on_threads(2, lambda comm: trained(graph, comm, **kept | {"epochs": 1}))[0][0]
    rest = on_threads(2, lambda comm: trained(graph, comm, **kept, resume="auto", replication=2))[0]
    assert rest[1]["resumed"]
    assert first + rest[0] == pytest.approx(ran[0][0], rel=1e-5)


def test_a_run_goes_on_with_relations_whole_and_again_in_block_rows(tmp_path):
    graph = hold_out(shop(edge_times=True), BUYS, 0.1, 0.2, 8, seed=0)
    whole = on_threads(2, lambda comm: trained(graph, comm, epochs=3))[0][0]
    found = []
    for epochs, placed in ((1, "partitioned"), (2, "replicated"), (3, "partitioned")):
        options = {"topology": placed, "features": "replicated", "epochs": epochs, "checkpoint": str(tmp_path)}
        options["resume"] = "auto" if epochs > 1 else None
        found += on_threads(2, lambda comm, o=options: trained(graph, comm, **o))[0][0]
    assert found == pytest.approx(whole, rel=1e-6)


def test_held_out_edges_of_another_store_are_refused_on_every_rank(tmp_path):
    graph = hold_out(shop(), BUYS, 0.1, 0.2, 8, seed=0)
    relations = tuple(replace(one, edge_ids=None) for one in shop().relations)  # with the held-out edges
    other = replace(graph, relations=relations)
    with pytest.raises(DataError, match=r"of the \d+ held-out edges of val are edges of relation user:buys:item"):
        on_threads(2, lambda comm: trained(other, comm, topology="partitioned", features="partitioned"))


@pytest.mark.long
def test_processes_of_mpirun_train_on_links_as_threads(tmp_path):
    hold_out(shop(edge_times=True), BUYS, 0.1, 0.2, 8, seed=0).save(tmp_path / "store")
    placed = {"topology": "partitioned", "features": "partitioned", "replication": 2}
    threads = on_threads(4, lambda comm: trained(tmp_path / "store", comm, **placed))[0][1]
    line = ["-m", "bulksample", "train", str(tmp_path / "store"), "--task", "links", "--quiet", "--json", str(tmp_path / "run.json")]
    line += ["--model", "hetero-sage", "--fanouts", "4,3", "--hidden", "8", "--epochs", "1", "--batch-size", "16", "--dropout", "0"]
    line += ["--threads", "1", "--graph", "partitioned", "--replication", "2", "--timeout", str(PATIENCE)]
    ended = run_ranks(4, line)
    assert ended.code == 0, ended
    found = json.loads((tmp_path / "run.json").read_text())
    told = ("train_loss", "test_mrr", "held_bytes")
    assert [found[key] for key in told] == [threads[key] for key in told]
    kinds = ("topology", "features", "activations", "gradients", "model")
    assert [found["bytes_sent"][kind] for kind in kinds] == [threads["bytes_sent"][kind] for kind in kinds]
