"""Minibatches come with their rows, several fetched at once or one by one, and a run can stop after any of them."""

import pytest
import torch
from communities import community_graph
from sweeps import sweep

from bulksample import UsageError
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer
from bulksample.training.batches import MiniBatchSource
from bulksample.views.features import NoFeatures

OPTIONS = {"fanouts": (5, 5), "hidden": 8, "batch_size": 16, "bulk_size": 3, "threads": 1}


def batches(together):
    trainer = make_trainer(TrainConfig.of(**OPTIONS), community_graph())
    return MiniBatchSource(trainer.context.batches.loader, trainer.context.view, trainer.context.ledger, together)


@pytest.mark.parametrize("together", [1, 2, 3, 7, 100])
def test_every_minibatch_comes_with_its_own_rows(together):
    features, made = torch.tensor(community_graph().features), batches(together)
    for epoch in range(2):
        for number, step in enumerate(made):
            assert (made.epoch, made.step) == (epoch, number + 1)
            assert torch.equal(step.x, features[torch.tensor(step.minibatch.vertices, dtype=torch.int64)])
        assert number + 1 == made.steps
        assert (made.epoch, made.step) == (epoch + 1, 0)


@pytest.mark.parametrize(("together", "k", "asks"), [(1, 3, [3, 3, 1]), (2, 3, [1, 2, 1]), (2, 6, [3, 1]), (3, 100, [2, 1]), (9, 2, [1])])
def test_the_rows_of_a_bulk_are_asked_for_at_once(together, k, asks):
    """Seven mini-batches in windows; a request is for a window, and for those that follow in the bulk that has been sampled."""
    seen = []

    class Source(NoFeatures):
        def ask(self, fetches):
            seen.append(len(fetches))
            return [lambda ids=ids: lambda: torch.zeros(len(ids), 1) for ids in fetches]

    trainer = make_trainer(TrainConfig.of(**{**OPTIONS, "batch_size": 22, "bulk_size": k}), community_graph())
    context = trainer.context
    context.view.features = Source()
    made = MiniBatchSource(context.batches.loader, context.view, context.ledger, together)
    assert made.steps == 7
    for _ in range(2):
        seen.clear()
        assert sum(1 for _ in made) == 7
        assert seen == asks


@pytest.mark.parametrize(("together", "left"), [(1, 1), (1, 2), (2, 1), (2, 2)])
def test_a_rank_that_leaves_early_fetches_what_it_has_asked_for(together, left):
    """Bulks of four mini-batches: after so many steps windows are under way or asked for, which other ranks may still wait for."""
    trainer = make_trainer(TrainConfig.of(**{**OPTIONS, "bulk_size": 4}), community_graph())
    context, waited = trainer.context, []

    class Source(NoFeatures):
        def ask(self, fetches):
            return [lambda ids=ids: lambda: waited.append(len(ids)) or torch.zeros(len(ids), 1) for ids in fetches]

    context.view.features, context.batches.loader.grows = Source(), False
    made = MiniBatchSource(context.batches.loader, context.view, context.ledger, together, leave_together=False)
    for _ in zip(range(left), made, strict=False):
        pass
    own = len(waited)
    made.drop()
    assert len(waited) == own, "nothing moves before an iteration begins"
    made.settle()
    assert len(waited) == 4 // together
    made.settle()
    assert len(waited) == 4 // together


@pytest.mark.long
@sweep(("together", "then"), [(1, 3), (3, 1), (4, 4), (100, 2)], quick=2)
def test_a_run_goes_on_after_any_step_of_a_window(together, then):
    whole = [step.minibatch.digest() for step in batches(together)]
    for stop in range(len(whole) + 1):
        first, second = batches(together), batches(then)
        seen = [step.minibatch.digest() for _, step in zip(range(stop), first, strict=False)]
        second.load_state_dict(first.state_dict())
        assert seen + [step.minibatch.digest() for step in second] == whole, stop


def leave(made):
    made.drop()


def move(made):
    made.continue_from(made.state_dict())


def begin_another(made):
    next(iter(made))


@pytest.mark.parametrize("together", [1, 4])
@pytest.mark.parametrize("left", [leave, move, begin_another])
def test_an_iteration_that_was_left_does_not_go_on(together, left):
    """Its rows are of another position than the one that the loader has; after a move a new iteration goes on."""
    made, whole = batches(together), [step.minibatch.digest() for step in batches(together)]
    old = iter(made)
    assert next(old).minibatch.digest() == whole[0]
    left(made)
    with pytest.raises(UsageError, match="were left for others"):
        next(old)
    if left is move:
        assert [step.minibatch.digest() for step in made] == whole[1:]
