"""The loss of each target of training.

    class         cross entropy of the logits z_v and the class of v
    multilabel    mean over the classes c that are known of v of the binary cross entropy of z_vc and y_vc
    regression    mean over the numbers that are known of v of (z_vc - y_vc)**2

A loss over vertices is the mean over all their known labels, so a vertex counts by its share of known labels: 1, unless some of its
columns are missing.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F


def seed_losses(target: str, logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss of each vertex, and the share of its labels that are known, by which it counts in a mean: shape (m,) each.

    Logits are float32, shape (m, outputs); labels are classes, int64 of shape (m,), or float32 of shape (m, outputs), NaN where one is
    missing. A loss is the sum over the known labels of a vertex, divided by the number of columns, so ``losses.sum() / shares.sum()`` is
    the mean over all known labels.
    """
    if target == "class":
        return F.cross_entropy(logits, labels, reduction="none"), label_shares(labels)
    known = ~labels.isnan()
    truth = torch.where(known, labels, 0.0)
    each = (logits - truth).square() if target == "regression" else F.binary_cross_entropy_with_logits(logits, truth, reduction="none")
    return torch.where(known, each, 0.0).mean(1), label_shares(labels)


def summed_loss(target: str, logits: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor | None = None) -> torch.Tensor:
    """Return the summed loss of `seed_losses`: shape (). Losses are multiplied by `weights`, shape (m,)."""
    if weights is None and target == "class":
        return F.cross_entropy(logits, labels, reduction="sum")
    losses, _ = seed_losses(target, logits, labels)
    return (losses if weights is None else losses * weights).sum()


def summed_shares(labels: torch.Tensor, weights: torch.Tensor | None = None) -> float:
    """Return the sum of `label_shares`, multiplied by `weights`, shape (m,), for labels on the host."""
    if weights is None and labels.ndim == 1:
        return len(labels)
    shares = label_shares(labels)
    return float((shares if weights is None else shares * weights).sum())


def label_shares(labels: torch.Tensor) -> torch.Tensor:
    """Return the share of each vertex's labels that are known: float32, shape (m,). A class is known."""
    return torch.ones(len(labels), device=labels.device) if labels.ndim == 1 else (~labels.isnan()).float().mean(1)


def known_rows(labels: torch.Tensor) -> torch.Tensor:
    """Return True for each row that has a label: shape (m,)."""
    return labels >= 0 if labels.ndim == 1 else ~labels.isnan().all(dim=1)
