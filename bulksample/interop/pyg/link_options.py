"""Check what users give to `LinkNeighborLoader` about links and negatives, before torch_geometric sees it."""

from __future__ import annotations

from math import isfinite
from numbers import Real
from typing import Any

import torch
from torch_geometric.sampler import NegativeSampling

from ...errors import UsageError
from ...graph.times import given_times
from .attributes import column
from .seed_sampler import starts_of


def negative_sampling(neg_sampling: Any, ratio: Any) -> NegativeSampling | None:
    """Return the law of the negatives; a `neg_sampling_ratio` other than 0 stands for binary negatives, as in torch_geometric.

    Raises `UsageError` for an amount that is no finite number above 0 (of triplets a whole one), a ratio below 0, another mode, and a ratio
    beside a `neg_sampling` that is not the same.
    """
    if ratio is not None and not (_is_number(ratio) and ratio >= 0):
        raise UsageError(f"neg_sampling_ratio: got {ratio!r}; use negatives for each link, a number of at least 0, or leave it out")
    of_ratio = None if not ratio else NegativeSampling("binary", ratio)
    if neg_sampling is None:
        return of_ratio
    amount: Any = neg_sampling.get("amount", 1) if isinstance(neg_sampling, dict) else getattr(neg_sampling, "amount", 1)
    if isinstance(neg_sampling, tuple) and len(neg_sampling) > 1:
        amount = neg_sampling[1]
    if not (_is_number(amount) and amount > 0):
        raise UsageError(f"neg_sampling: got the amount {amount!r}; use negatives for each link, a number above 0")
    try:
        law = NegativeSampling.cast(neg_sampling)
        if not isinstance(law, NegativeSampling):
            raise TypeError(f"got a {type(law).__name__}")
    except (TypeError, ValueError) as error:
        fits = "'binary', 'triplet', a NegativeSampling of torch_geometric, or a dict of its arguments; triplets have a whole amount"
        raise UsageError(f"neg_sampling: {error}; use {fits}") from None
    if of_ratio is not None and not (law.is_binary() and law.amount == ratio and law.src_weight is None and law.dst_weight is None):
        found = f"{law.mode.value} negatives, {law.amount:g} of each"
        raise UsageError(f"neg_sampling gives {found}, and neg_sampling_ratio={ratio:g} others, binary and uniform; leave out one of them")
    return law


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and isfinite(value)


def link_starts(starts: Any, times: torch.Tensor | None) -> torch.Tensor | None:
    """Return the beginning of the window of each link: int64, shape (m,).

    Raises `UsageError` without times of the links, for another number of starts, and for a start later than its time.
    """
    if starts is None:
        return None
    if times is None:
        raise UsageError("edge_label_start was given without edge_label_time; give it too, or leave edge_label_start out")
    given = column("edge_label_start", starts)
    return torch.from_numpy(starts_of("edge_label_start", given, given_times("edge_label_time", times)))


def check_links(links: int, labels: torch.Tensor | None, times: torch.Tensor | None, law: NegativeSampling | None) -> None:
    """Raise `UsageError` unless labels and times fit the number of links, and labels the negatives."""
    if times is not None:
        if times.ndim == 1 and len(times) != links:
            raise UsageError(f"edge_label_time: got {len(times)} times for {links} links; use one for each")
        given_times("edge_label_time", times, links)
    if labels is None:
        return
    if law is not None and law.is_triplet():
        raise UsageError("edge_label was given, and triplets have no labels; leave it out, or use neg_sampling='binary'")
    if labels.ndim == 0 or len(labels) != links:
        raise UsageError(f"edge_label: got shape {tuple(labels.shape)} for {links} links; use one label for each")
    if law is not None and links and labels.min() < 0 and (labels == 0).any():
        raise UsageError("edge_label has 0 and numbers below it, and 0 is the label of negatives; number the labels from 0")
