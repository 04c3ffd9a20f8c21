"""Ranks that leave a loop over a shared loader after different steps are named, and nothing hangs."""

import pytest
from shared_graphs import PLACES, assert_refused, digests, loader, opened, shares

import bulksample as bs
from bulksample.distributed.comm.threads import on_threads


@pytest.mark.parametrize(("topology", "features"), PLACES)
def test_ranks_that_resume_at_different_places_are_refused_on_every_rank(stored, topology, features):
    folder, _ = stored

    def act(comm):
        batches = loader(opened(folder / "plain", comm, topology=topology, features=features))
        state = batches.state_dict()
        digests(batches)
        if comm.rank:
            batches.load_state_dict({**state, "step": 2})
        next(iter(batches))

    assert_refused(2, act, "rank 0 begins epoch 1 at step 0; rank 1 begins epoch 0 at step 2, where a state was loaded")


@pytest.mark.parametrize(("topology", "features"), PLACES[:3])
@pytest.mark.parametrize("options", [
    {}, {"prefetch": False, "bulk_size": 4}, {"fetch_together": 2}, {"bulk_size": 1}, {"bulk_size": 1, "prefetch": False}, {"bulk_size": 5},
    {"bulk_size": 3, "fetch_together": 2}, {"batch_size": 4, "bulk_size": 2}, {"batch_size": 4, "fetch_together": 3},
    {"bulk_size": 1, "fetch_together": 3}, {"batch_size": 4, "bulk_size": 2, "fetch_together": 8},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("kind", ["plain", "sparse"])
def test_a_rank_that_leaves_a_loop_early_is_named_when_it_begins_the_next(stored, options, topology, features, kind):
    """It may leave in the middle of a bulk whose rows were asked for at once, while threads sample the next ones."""
    folder, _ = stored

    def act(comm):
        batches = loader(opened(folder / kind, comm, topology=topology, features=features), **options)
        for _ in range(2):
            for step, _ in enumerate(batches):
                if step == 1 and comm.rank == 0:
                    break

    steps = len(loader(stored[1]["plain"], ranks=2, **{**options, "fetch_together": 1}))
    told = rf"rank 0 begins epoch 1 at step 0, having left epoch 0 after 2 of {steps} steps"
    refused = rf"the ranks have not taken the same steps: {told}; rank 1 (is at|samples from|begins epoch 1 at) step "

    def rank(comm):
        with pytest.raises(bs.UsageError, match=refused):
            act(comm)
        comm.barrier()  # no rank is still in a collective of the call

    on_threads(2, rank)


@pytest.mark.parametrize("prefetch", [False, True])
def test_all_steps_may_be_taken_after_a_refusal(stored, prefetch):
    folder, _ = stored

    def rank(comm):
        batches = loader(opened(folder / "plain", comm), bulk_size=2, prefetch=prefetch)
        if comm.rank == 0:
            next(iter(batches))
        with pytest.raises(bs.UsageError, match="rank 0 begins epoch 1 at step 0, having left epoch 0 after 1 of"):
            digests(batches)
        comm.barrier()
        return [len(digests(batches)) for _ in range(2)]

    steps = len(loader(stored[1]["plain"], ranks=2))
    assert on_threads(2, rank) == [[steps, steps]] * 2


def test_ranks_that_leave_a_loop_after_different_steps_of_a_bulk_are_named(stored):
    folder, _ = stored

    def act(comm):
        batches = loader(opened(folder / "plain", comm), batch_size=4, bulk_size=8, prefetch=False)
        for _ in range(2):
            for step, _ in enumerate(batches):
                if step == 1 + comm.rank:
                    break

    told = "having left epoch 0 after 2 of 18 steps; rank 1 begins epoch 1 at step 0, having left epoch 0 after 3 of 18 steps"
    assert_refused(2, act, told)


def test_ranks_that_leave_a_loop_after_the_same_step_go_on(stored):
    folder, graphs = stored

    def rank(comm):
        batches = loader(opened(folder / "plain", comm))
        first = [batch.digest() for _, batch in zip(range(2), batches, strict=False)]
        return first, digests(batches)

    expected = shares(graphs["plain"], 2, epochs=2)
    assert [(one[:2], two) for one, two in expected] == on_threads(2, rank)


def test_ranks_never_draw_for_different_epochs_at_once(stored):
    """The owner of a row draws with its own epoch, so the answer to a rank in another epoch would be wrong."""
    folder, _ = stored

    def act(comm):
        batches = loader(opened(folder / "plain", comm, features="replicated"), prefetch=False)
        batches.bulks.epoch = comm.rank
        next(iter(batches.bulks))

    assert_refused(2, act, "rank 0 samples from step 0 of epoch 0; rank 1 samples from step 0 of epoch 1")
