"""Learned rows of types without features, in block rows: the training of one rank, its gradients, its bytes and its checkpoints."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from oracles.fetches import predict_fetches, predict_learned_steps
from planted_relations import planted
from recorder import Recorder

from bulksample import DataError, UsageError
from bulksample.distributed.comm.base import KINDS
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.config import TrainConfig
from bulksample.methods.predict import predict
from bulksample.methods.run import make_trainer
from bulksample.training import checkpoint

QUICK = {
    "model": "hetero-sage", "fanouts": (4, 3), "hidden": 8, "epochs": 1, "batch_size": 12, "dropout": 0.3, "threads": 1, "lr": 0.01,
    "features": "partitioned",
}  # fmt: skip
GRIDS = [(2, 1), pytest.param(4, 1, marks=pytest.mark.long), pytest.param(4, 2, marks=pytest.mark.long)]


def graph_of(times=False):
    """Authors and venues without features."""
    graph = planted(times=times)
    return replace(graph, types=(graph.types[0], replace(graph.types[1], features=None), graph.types[2]))


def trainer_of(source, comm=None, recorder=None, **options):
    return make_trainer(TrainConfig.of(**{**QUICK, **options}), source, comm, [recorder] if recorder else [])


def trained(source, comm=None, **options):
    recorder = Recorder()
    made = trainer_of(source, comm, recorder, **options)
    return SimpleNamespace(report=made.run(), losses=recorder.losses, trainer=made)


def tables(runs):
    """The learned tables of all types, put together from the block rows of all ranks, which must agree where they hold the same rows."""
    out = {}
    for run in runs:
        model = run.trainer.model
        for name, own in zip(model.types[0], model.inputs, strict=True):
            if own.bias is None:
                table = out.setdefault(name, torch.full((own.rows, own.weight.shape[1]), torch.nan))
                members = torch.arange(own.rows) if own.members is None else torch.from_numpy(own.members.astype(np.int64))
                before = table[members]
                assert (before.isnan() | (before == own.weight.detach())).all()
                table[members] = own.weight.detach()
    return out


@pytest.mark.parametrize("partition", ["block", "random"])
@pytest.mark.parametrize(("p", "c"), GRIDS)
def test_divided_tables_are_trained_as_whole_ones(p, c, partition):
    """One rank that makes the steps of p ranks, with the table whole: same losses, scores and rows after two epochs."""
    graph = graph_of(times=True)
    options = {"epochs": 2, "input_dropout": 0.2}
    one = trained(graph, features="replicated", virtual_ranks=p, **options)
    runs = on_threads(p, lambda comm: trained(graph, comm, replication=c, partition=partition, **options))
    assert runs[0].losses == pytest.approx(one.losses, rel=1e-4)
    assert runs[0].report["val_accuracy"] == pytest.approx(one.report["val_accuracy"])
    whole = tables([one])
    for name, table in tables(runs).items():
        torch.testing.assert_close(table, whole[name], rtol=1e-4, atol=1e-5)
    assert {key: runs[0].report[key] for key in ("parameters", "embedding_bytes")} == {
        key: one.report[key] for key in ("parameters", "embedding_bytes")
    }
    for run in runs:
        for own in run.trainer.model.learned.inputs.values():
            assert len(own.weight) <= -(-own.rows // (p // c))  # no rank holds a full table
    assert runs[0].report["held_bytes"]["embeddings"] == 4 * 8 * (-(-40 // (p // c)) + -(-6 // (p // c)))


def gradients(made):
    """Make one step of a trainer without its optimizer; return the gradients of the learned rows of each type, by vertex."""
    context = made.context
    batch = next(iter(context.batches))
    context.model.generator.manual_seed(0)
    loss, count = made.method.loss(context, batch)
    sums = torch.zeros(3)
    if loss is not None:
        loss.backward()
        sums[0], sums[1] = count, loss.detach()
    made.method.combine_gradients(context, sums)
    inputs = dict(zip(context.model.types[0], context.model.inputs, strict=True))
    return {
        name: (np.arange(own.rows) if own.members is None else own.members, own.weight.grad.numpy())
        for name, own in inputs.items()
        if own.bias is None
    }


@pytest.mark.parametrize("model", ["hetero-sage", "hetero-gat"])
@pytest.mark.parametrize(("p", "c"), GRIDS)
def test_gradients_at_owners_are_those_of_whole_tables(p, c, model):
    graph, options = graph_of(), {"dropout": 0.0, "model": model}
    whole = on_threads(p, lambda comm: gradients(trainer_of(graph, comm, features="replicated", **options)))[0]
    divided = on_threads(p, lambda comm: gradients(trainer_of(graph, comm, replication=c, **options)))
    for name, (_, expected) in whole.items():
        assert np.abs(expected).max() > 1e-4
        for of_rank in divided:
            members, own = of_rank[name]
            np.testing.assert_allclose(own, expected[members], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("codec", ["fp32", "fp16"])
@pytest.mark.parametrize(("p", "c"), GRIDS)
@pytest.mark.parametrize("k", [1, 3])
def test_bytes_are_those_predicted(p, c, codec, k):
    graph, options = graph_of(), {"replication": c, "gradient_codec": codec, "evaluate": "none", "bulk_size": k}
    blank = on_threads(p, lambda comm: trained(graph, comm, **options, epochs=0))[0]
    run = on_threads(p, lambda comm: trained(graph, comm, **options))[0]
    drawn = on_threads(p, lambda comm: [batch.minibatch for batch in trainer_of(graph, comm, **options).context.batches])
    expected = dict.fromkeys(KINDS, 0)
    steps = list(zip(*drawn, strict=True))
    for first in range(0, len(steps), k):
        bulk = [own[first : first + k] for own in drawn]
        named = [
            [[np.empty(0, np.int32) if one is None else one.vertices[kind.name] for one in own] for own in bulk] for kind in graph.types
        ]
        bounds = [np.arange(p // c + 1) * kind.count // (p // c) for kind in graph.types]
        sent = predict_fetches(c, named[0], bounds[0], 2)
        for ids, own in zip(named[1:], bounds[1:], strict=True):
            sent = sent + predict_learned_steps(c, ids, own, 8, codec)
        for of_rank in sent:
            for kind, tally in of_rank.items():
                expected[kind] += tally.bytes
    theta = sum(own.numel() for own in run.trainer.model.parameters()) - sum(own.numel() for own in run.trainer.model.shards.values())
    words = 4 if codec == "fp32" else 2
    expected["gradients"] += len(steps) * 2 * (p - 1) * (words * theta + 4 * 3)
    for kind in ("topology", "features", "gradients"):
        assert run.report["bytes_sent"][kind] - blank.report["bytes_sent"][kind] == expected[kind], kind
    bulks, types, learned = -(-len(steps) // k), 3, 2
    grown = {kind: run.report["collectives"][kind] - blank.report["collectives"][kind] for kind in KINDS}
    assert grown["features"] == types * len(steps)  # the rows of each type, once a mini-batch
    assert grown["topology"] == types * bulks + learned * (c > 1) * len(steps)  # ids, once a bulk; with c > 1 those of gradients
    assert blank.report["bytes_sent"]["model"] == run.report["bytes_sent"]["model"] == 4 * (p - 1) * theta


def test_large_tables_begin_as_whole_ones(monkeypatch):
    """The numbers of a table are drawn in chunks, so that no rank holds all of them."""
    import bulksample.nn.type_input as drawing

    monkeypatch.setattr(drawing, "_CHUNK", 40)
    members = np.array([1, 4, 5, 11, 12], np.int32)
    whole = drawing.TypeInput(0, 13, 8, torch.Generator().manual_seed(3))
    part = drawing.TypeInput(0, 13, 8, torch.Generator().manual_seed(3), members)
    assert torch.equal(part.weight, whole.weight[torch.from_numpy(members.astype(np.int64))])
    assert len(torch.unique(whole.weight)) == 13 * 8


def test_one_learned_row_for_all_is_not_divided():
    runs = on_threads(2, lambda comm: trained(graph_of(), comm, featureless="constant"))
    one = trained(graph_of(), features="replicated", virtual_ranks=2, featureless="constant")
    assert runs[0].losses == pytest.approx(one.losses, rel=1e-4)
    assert runs[0].trainer.model.shards == {}


@pytest.mark.long
@pytest.mark.parametrize("partition", ["block", "random"])
@pytest.mark.parametrize(
    ("p", "c", "q", "d"), [(2, 1, 2, 1), pytest.param(2, 2, 2, 2, marks=pytest.mark.long), pytest.param(4, 2, 4, 1, marks=pytest.mark.long)]
)
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, p, c, q, d, partition):
    """Shards come back bit by bit; also on another grid, where rows have other owners, within rounding."""
    graph, kept = graph_of(times=True), str(tmp_path / "kept")
    whole = on_threads(p, lambda comm: trained(graph, comm, epochs=3, replication=c, partition=partition))
    on_threads(p, lambda comm: trained(graph, comm, epochs=1, replication=c, partition=partition, checkpoint=kept))
    options = {"epochs": 3, "checkpoint": kept, "resume": "auto", "partition": partition}
    rest = on_threads(q, lambda comm: trained(graph, comm, replication=d, **options))
    assert rest[0].report["resumed"]
    for name, table in tables(rest).items():
        torch.testing.assert_close(table, tables(whole)[name], rtol=0 if c == d else 1e-4, atol=0 if c == d else 1e-6)
    assert rest[0].report["best_epoch"] == whole[0].report["best_epoch"]
    shards = sorted(path.name for path in (tmp_path / "kept").glob("step-*/shard-*"))
    assert len(set(shards)) == q // d


def test_fewer_ranks_continue_a_run_with_shards(tmp_path):
    graph, kept = graph_of(), str(tmp_path / "kept")
    whole = trained(graph, features="replicated", virtual_ranks=2, epochs=2)
    on_threads(2, lambda comm: trained(graph, comm, epochs=1, checkpoint=kept))
    rest = trained(graph, epochs=2, checkpoint=kept, resume="auto")
    for name, table in tables([rest]).items():
        torch.testing.assert_close(table, tables([whole])[name], rtol=1e-4, atol=1e-5)


def test_a_checkpoint_of_divided_tables_does_not_fit_whole_ones(tmp_path):
    graph, kept = graph_of(), str(tmp_path / "kept")
    trained(graph, epochs=1, checkpoint=kept)
    with pytest.raises(UsageError, match="learned rows were partitioned and are replicated now; use features partitioned"):
        trained(graph, epochs=2, checkpoint=kept, resume="auto", features="replicated")


def test_a_damaged_shard_is_found_and_predict_reads_the_others(tmp_path, capfd):
    graph, kept = graph_of(), tmp_path / "kept"
    runs = on_threads(2, lambda comm: trained(graph, comm, epochs=2, checkpoint=str(kept), eval_every=2))
    one = trained(graph, epochs=2, virtual_ranks=2, features="replicated", eval_every=2, checkpoint=str(tmp_path / "other"))
    np.testing.assert_allclose(predict(graph, kept).logits, predict(graph, tmp_path / "other").logits, rtol=1e-3, atol=1e-4)
    assert runs[0].report["steps"] == one.report["steps"]
    newest = max(kept.glob("step-*"))
    shard = newest / "shard-00001.safetensors"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    assert checkpoint.newest(kept)[0] != newest
    assert "the SHA-256 of shard-00001.safetensors is not the one" in capfd.readouterr().err


def test_a_checkpoint_that_lacks_rows_is_refused(tmp_path, monkeypatch):
    graph, kept = graph_of(), tmp_path / "kept"
    on_threads(2, lambda comm: trained(graph, comm, epochs=1, checkpoint=str(kept)))
    read = checkpoint.read_shards

    def fewer(folder, state):
        for shard in read(folder, state):
            yield {name: rows[:-1] for name, rows in shard.items()}

    monkeypatch.setattr(checkpoint, "read_shards", fewer)
    with pytest.raises(DataError, match=r"its shards lack rows of adam\.inputs"):
        trained(graph, epochs=2, checkpoint=str(kept), resume="auto", virtual_ranks=2)


def test_a_shard_that_changes_after_it_was_checked_is_damaged(tmp_path):
    graph, kept = graph_of(), tmp_path / "kept"
    on_threads(2, lambda comm: trained(graph, comm, epochs=1, checkpoint=str(kept)))
    folder = max(kept.glob("step-*"))
    _, state = checkpoint.load(folder)
    shard = folder / "shard-00001.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    with pytest.raises(DataError, match=r"the SHA-256 of shard-00001\.safetensors is not the one"):
        list(checkpoint.read_shards(folder, state))
