"""The loss of each target against plain torch, with labels missing here and there."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from bulksample.nn.losses import known_rows, seed_losses, summed_loss, summed_shares

LOGITS = torch.randn((7, 3), generator=torch.Generator().manual_seed(0))
MISSING = torch.tensor([[r == 2 or (r + c) % 4 == 3 for c in range(3)] for r in range(7)])  # row 2 has no label


def columns(target):
    values = torch.randn((7, 3), generator=torch.Generator().manual_seed(1))
    return torch.where(MISSING, np.nan, (values > 0).float() if target == "multilabel" else values)


def plain(target, logits, labels):
    """The mean over all known labels."""
    known = ~labels.isnan()
    function = F.binary_cross_entropy_with_logits if target == "multilabel" else F.mse_loss
    return function(logits[known], labels[known])


@pytest.mark.parametrize("target", ["multilabel", "regression"])
def test_the_loss_is_the_mean_over_all_known_labels(target):
    logits, labels = LOGITS.clone().requires_grad_(), columns(target)
    loss, count = summed_loss(target, logits, labels), summed_shares(labels)
    assert count == pytest.approx(float((~MISSING).sum()) / 3)
    torch.testing.assert_close(loss / count, plain(target, logits, labels))
    (found,) = torch.autograd.grad(loss / count, logits)
    (expected,) = torch.autograd.grad(plain(target, logits, labels), logits)
    torch.testing.assert_close(found, expected)
    losses, shares = seed_losses(target, logits, labels)
    assert (losses[2], shares[2]) == (0, 0), "a vertex without a label counts for nothing"
    assert known_rows(labels).tolist() == [True, True, False, True, True, True, True]


def test_classes_count_one_each():
    labels = torch.tensor([0, 1, 2, 2, 1, 0, 0])
    loss, count = summed_loss("class", LOGITS, labels), summed_shares(labels)
    assert count == 7
    torch.testing.assert_close(loss / count, F.cross_entropy(LOGITS, labels))
    losses, shares = seed_losses("class", LOGITS, labels)
    torch.testing.assert_close(losses, F.cross_entropy(LOGITS, labels, reduction="none"))
    assert shares.tolist() == [1] * 7
    assert known_rows(torch.tensor([0, -1, 3])).tolist() == [True, False, True]


def test_weights_count_in_the_loss_and_in_the_number():
    """As if a vertex of weight 2 stood there twice, and one of weight 0 not at all."""
    labels, weights = torch.tensor([0, 1, 2, 1])[: len(LOGITS)], torch.tensor([2.0, 0.0, 1.0, 1.0])[: len(LOGITS)]
    labels = labels % LOGITS.shape[1]
    rows = torch.arange(len(labels)).repeat_interleave(weights.long())
    expected = summed_loss("class", LOGITS[rows], labels[rows])
    torch.testing.assert_close(summed_loss("class", LOGITS[: len(labels)], labels, weights), expected)
    assert summed_shares(labels, weights) == summed_shares(labels[rows]) == 4
