"""The options of the optimizer, held against torch's Adam on a dense GraphSAGE."""

import pytest
import torch
from plain import WHOLE, copied, sage, trained, trainer, training_loss, without_scores


def losses(epochs, lr, weight_decay=0.0):
    """The losses of a run, and those of torch's Adam from the same weights: one step an epoch, on all vertices."""
    source = without_scores()
    weights = copied(trainer(source, **WHOLE).model)
    adam, expected = torch.optim.Adam(weights, lr=lr, weight_decay=weight_decay), []
    for _ in range(epochs):
        loss = training_loss(source, sage(source, weights))
        adam.zero_grad()
        loss.backward()
        adam.step()
        expected.append(loss.item())
    options = {**WHOLE, "epochs": epochs, "lr": lr, "weight_decay": weight_decay}
    return torch.tensor(trained(source, **options)[1].losses), torch.tensor(expected)


def test_lr_is_adams():
    torch.testing.assert_close(*losses(epochs=4, lr=0.05), rtol=1e-4, atol=1e-5)


def test_weight_decay_is_adams():
    torch.testing.assert_close(*losses(epochs=4, lr=0.01, weight_decay=2.0), rtol=1e-4, atol=1e-5)


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
