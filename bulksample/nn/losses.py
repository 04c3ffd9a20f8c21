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
    """Return the loss of each vertex, and the weight by which it counts in a mean.

    Parameters
    ----------
    target : {"class", "multilabel", "regression"}
    logits : float32, shape (m, outputs)
    labels : int64, shape (m,), classes; or float32, shape (m, outputs), NaN where a label is missing

    Returns
    -------
    losses : shape (m,)
        The sum over the known labels of a vertex, divided by the number of columns.
    shares : shape (m,)
        The share of its labels that are known, so ``losses.sum() / shares.sum()`` is the mean over all known labels.
    """
    if target == "class":
        return F.cross_entropy(logits, labels, reduction="none"), torch.ones_like(logits[:, 0])
    known = ~labels.isnan()
    truth = torch.where(known, labels, 0.0)
    each = (logits - truth).square() if target == "regression" else F.binary_cross_entropy_with_logits(logits, truth, reduction="none")
    return torch.where(known, each, 0.0).mean(1), known.float().mean(1)


def summed_loss(target: str, logits: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor | None = None) -> tuple[torch.Tensor, float]:
    """Return the summed loss and the summed shares of `seed_losses`; `weights`, shape (m,), multiplies both."""
    if weights is not None:
        losses, shares = (part * weights.to(part.device) for part in seed_losses(target, logits, labels))
        return losses.sum(), float(shares.sum())
    if target == "class":
        return F.cross_entropy(logits, labels, reduction="sum"), len(labels)
    losses, shares = seed_losses(target, logits, labels)
    return losses.sum(), float(shares.sum())


def known_rows(labels: torch.Tensor) -> torch.Tensor:
    """Return True for each row that has a label: shape (m,)."""
    return labels >= 0 if labels.ndim == 1 else ~labels.isnan().all(dim=1)
