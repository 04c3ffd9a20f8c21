"""The options of the optimizer, held against torch's Adam on a dense GraphSAGE."""

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
