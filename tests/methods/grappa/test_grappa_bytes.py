"""Grappa: an epoch sends gradients and nothing else, and views cost the rows that others hold."""

import numpy as np
import pytest
from communities import community_graph
from sweeps import sweep
from test_grappa import GRAPPA
from training_runs import weights_and_report, weights_of

from bulksample.data import store
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.config import TrainConfig
from bulksample.methods.grappa.method import Grappa
from bulksample.methods.run import make_trainer


class Watched(Grappa):
    """Writes down which collectives are called between the beginning and the end of a round's steps, and what they send."""

    def begin_round(self, context):
        super().begin_round(context)
        self.seen = getattr(self, "seen", [])
        self.before, self.inside = dict(context.comm.tally), []
        context.comm._note = self.inside.append

    def end_step(self, context, sums):
        if context.step == context.batches.steps:
            del context.comm._note
            sent = {kind: context.comm.tally[kind].bytes - self.before[kind].bytes for kind in self.before}
            self.seen.append((self.inside, {kind: count for kind, count in sent.items() if count}))
        return super().end_step(context, sums)


@pytest.mark.parametrize("options", [
    {}, {"view": "strict", "chunking": "fresh", "swap_every": 1}, {"full_graph": True}, {"model": "gat", "heads": 2},
    {"seed_weights": "tree", "chunking": "fresh", "shrink": 1.0}, {"partition": "block", "fanouts": (9, 9, 2), "layers": 3},
])  # fmt: skip
def test_an_epoch_sends_gradients_and_nothing_else(stored, options, monkeypatch):
    """2 (p - 1) 4 (|theta| + 7) bytes a step, whatever is cut, sampled or seen."""
    monkeypatch.setattr("bulksample.methods.run.load", lambda name: Watched)
    p = 4

    def rank(comm):
        trainer = make_trainer(TrainConfig.of(**{**GRAPPA, **options}), stored / "plain", comm)
        trainer.run()
        return trainer.method.seen, weights_of(trainer).numel(), trainer.context.progress.steps

    found = on_threads(p, rank)
    seen, numbers, steps = found[0]
    epochs = [[rank[0][e] for rank in found] for e in range(len(seen))]
    assert len(epochs) == 4
    total = 0
    for ranks in epochs:
        for notes, sent in ranks:
            assert notes
            assert all(note.startswith("allreduce gradients") for note in notes)
            assert sent.keys() == {"gradients"}
        total += sum(sent["gradients"] for _, sent in ranks)
    assert total == steps * 2 * (p - 1) * 4 * (numbers + 7)


def moved(method, graph, turn):
    """Bytes of topology and of features that the views of a super-epoch cost, counted vertex by vertex."""
    deal, owner = method.visible_parts(turn), method.parts.layout.blocks_of(np.arange(graph.n))
    topology = features = 0
    for rank in range(method.comm.size):
        seen = deal.sees(rank, np.arange(graph.n))
        held = graph.adjacency.take(np.flatnonzero(seen & (owner != rank)))
        needed = seen.copy()
        if method.config.view == "halo":
            needed[graph.adjacency.take(np.flatnonzero(seen)).indices] = True
        fetched = int((needed & (owner != rank)).sum())
        edges = held.nnz if method.config.view == "halo" else int(seen[held.indices].sum())
        topology += 4 * held.shape[0] + 4 * edges + 4 * fetched
        features += 4 * graph.num_features * fetched
    return topology, features


@sweep(
    "options", [{"view": "strict"}, {"view": "halo"}, {"view": "strict", "chunking": "fresh"}, {"view": "base", "swap_every": 10}], quick=2
)
@pytest.mark.parametrize("overlap", [True, False])
def test_new_views_send_the_rows_that_others_hold_as_reported(stored, options, overlap):
    p, graph = 4, store.load(stored / "plain")

    def rank(comm):
        trainer = make_trainer(TrainConfig.of(**{**GRAPPA, **options, "epochs": 7, "overlap": overlap}), stored / "plain", comm)
        trainer.method.evaluate = lambda trainer: {"val_accuracy": 0.0}
        before = [comm.tally[kind].bytes for kind in ("topology", "features")]
        report = trainer.run()
        sent = [comm.tally[kind].bytes - begun for kind, begun in zip(("topology", "features"), before, strict=True)]
        turns = sorted({trainer.method.turn(epoch) for epoch in range(7)} - {0})
        return sent, report, [moved(trainer.method, graph, turn) for turn in turns]

    found = on_threads(p, rank)
    expected = np.sum(found[0][2], axis=0) if found[0][2] else np.zeros(2)
    assert np.sum([sent for sent, _, _ in found], axis=0).tolist() == expected.tolist()
    assert (len(found[0][2]) == 0) == (options["view"] == "base")
    moved_bytes = found[0][1]["repartition_bytes"]
    counts = 8 * p * (p - 1)  # how much comes is agreed by 8 bytes from each rank to each other, for every message of a view
    assert expected.sum() <= moved_bytes <= expected.sum() + len(found[0][2]) * (5 * counts + 2 * 24 * (p - 1))


def test_every_training_vertex_is_a_seed_once_an_epoch_on_as_many_steps_everywhere(stored, monkeypatch):
    seeds = {}

    class Counted(Grappa):
        def loss(self, context, batch):
            if batch.minibatch is not None:
                own = seeds.setdefault((context.epoch, context.comm.rank), [])
                own.append(self.local.vertices[batch.minibatch.seeds])
            return super().loss(context, batch)

    monkeypatch.setattr("bulksample.methods.run.load", lambda name: Counted)
    graph = store.load(stored / "plain")
    for options in ({"partition": "metis"}, {"chunking": "fresh", "swap_every": 1}, {"batch_size": 7}):
        seeds.clear()
        on_threads(5, lambda comm, options=options: weights_and_report(stored / "plain", comm, **{**GRAPPA, **options}))
        for epoch in range(4):
            held = np.concatenate([part for (e, _), parts in seeds.items() if e == epoch for part in parts])
            assert (np.sort(held) == graph.default_seeds()).all()


def test_ranks_without_seeds_or_vertices_take_part(stored, tmp_path):
    graph = community_graph(n=60)
    graph.masks["train"][12:] = False
    store.save(graph, tmp_path / "g")
    for options in ({}, {"full_graph": True}, {"seed_weights": "batch", "view": "strict"}, {"chunking": "fresh", "seed_weights": "tree"}):
        report = on_threads(4, lambda comm, o=options: weights_and_report(tmp_path / "g", comm, **{**GRAPPA, "partition": "block", **o}))[
            0
        ][1]
        assert np.isfinite(report["train_loss"])
    tiny = community_graph(n=5, classes=2)
    store.save(tiny, tmp_path / "s")
    for options in ({}, {"full_graph": True}, {"chunking": "fresh", "swap_every": 1, "view": "strict"}):
        on_threads(8, lambda comm, o=options: weights_and_report(tmp_path / "s", comm, **{**GRAPPA, "seeds": "all", **o}))
