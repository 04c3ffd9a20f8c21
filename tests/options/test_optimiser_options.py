"""The options of the optimizer, held against torch's Adam on a dense GraphSAGE."""

import pytest
import torch
from plain import WHOLE, copied, sage, trained, trainer, training_loss, without_scores
from torch.optim import lr_scheduler


def losses(epochs, lr, weight_decay=0.0, scheduler=None, clip=None, **options):
    """The losses of a run, and those of torch's Adam from the same weights: one step an epoch, on all vertices."""
    source = without_scores()
    weights = copied(trainer(source, **WHOLE).model)
    adam, expected = torch.optim.Adam(weights, lr=lr, weight_decay=weight_decay), []
    schedule = scheduler(adam) if scheduler else None
    for _ in range(epochs):
        loss = training_loss(source, sage(source, weights))
        adam.zero_grad()
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(weights, clip)
        adam.step()
        if schedule:
            schedule.step()
        expected.append(loss.item())
    asked = {**WHOLE, "epochs": epochs, "lr": lr, "weight_decay": weight_decay, **options}
    return torch.tensor(trained(source, **asked)[1].losses), torch.tensor(expected)


def test_lr_is_adams():
    torch.testing.assert_close(*losses(epochs=4, lr=0.05), rtol=1e-4, atol=1e-5)


def test_weight_decay_is_adams():
    torch.testing.assert_close(*losses(epochs=4, lr=0.01, weight_decay=2.0), rtol=1e-4, atol=1e-5)


CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def test_lr_schedule_falls_along_a_cosine():
    found = losses(6, 0.05, scheduler=lambda adam: lr_scheduler.CosineAnnealingLR(adam, 6), lr_schedule="cosine")
    torch.testing.assert_close(*found, **CLOSE)


def test_warmup_rises_along_a_line():
    found = losses(6, 0.05, scheduler=lambda adam: lr_scheduler.LinearLR(adam, 0.25, total_iters=3), warmup=3)
    torch.testing.assert_close(*found, **CLOSE)


def test_lr_end_factor_is_the_share_at_the_end():
    scheduler = {"scheduler": lambda adam: lr_scheduler.LinearLR(adam, 1.0, 0.4, 6)}
    torch.testing.assert_close(*losses(6, 0.05, **scheduler, lr_schedule="linear", lr_end_factor=0.4), **CLOSE)


def test_lr_step_size_and_lr_gamma_are_those_of_step_lr():
    scheduler = {"scheduler": lambda adam: lr_scheduler.StepLR(adam, 2, 0.5)}
    torch.testing.assert_close(*losses(6, 0.05, **scheduler, lr_schedule="step", lr_step_size=2, lr_gamma=0.5), **CLOSE)


def test_clip_norm_is_the_largest_norm_of_a_gradient():
    """So small a norm that Adam's epsilon counts: else it undoes what a clipped gradient lost."""
    torch.testing.assert_close(*losses(6, 0.05, clip=1e-7, clip_norm=1e-7), **CLOSE)


def test_epochs_are_passes_over_all_seeds():
    source = without_scores()
    seeds, batch = int(source.masks["train"].sum()), 7
    _, recorder, made = trained(source, batch_size=batch, epochs=3)
    assert len(recorder.lines) == 3
    assert len(recorder.losses) == made.context.progress.steps == 3 * -(-seeds // batch)


def test_virtual_ranks_are_the_minibatches_of_a_step():
    """Three mini-batches of seven seeds each are one step: the gradient is that of the mean over their seeds."""
    source = without_scores()
    seeds = int(source.masks["train"].sum())
    _, recorder, made = trained(source, batch_size=7, epochs=1, virtual_ranks=3)
    assert len(recorder.losses) == made.context.progress.steps == -(-seeds // 21)
    small, large = ({**WHOLE, "batch_size": size, "epochs": 3, "lr": 0.05} for size in (-(-seeds // 3), seeds))
    shared, whole = trained(source, **small, virtual_ranks=3)[1].losses, trained(source, **large)[1].losses
    assert shared == pytest.approx(whole, rel=1e-4)
