"""Check the options of torch's `DataLoader` that a drop-in loader gets, before torch sees them."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from inspect import signature
from typing import Any

from torch.utils.data import DataLoader
from torch_geometric.loader import LinkLoader, NodeLoader

from ...errors import UsageError, check_switches, is_whole
from .user_order import distributed_sampler, has_length

_NOT_HERE = {
    "worker_init_fn": "there are no worker processes to set up",
    "multiprocessing_context": "there are no worker processes",
    "generator": "the order of an epoch is a function of `seed`",
}
_ONE_OF_THEM = "leave out one of them; Lightning adds none with Trainer(use_distributed_sampler=False)"
_OF_TORCH = frozenset(signature(DataLoader.__init__).parameters) - {"self", "dataset", "collate_fn"}
_OF_LOADERS = frozenset({"custom_cls", "input_id"})  # of torch_geometric's NodeLoader and LinkLoader


def check_options(loader: type, options: dict[str, Any], several_ranks: bool) -> None:
    """Raise `UsageError` for an option that torch does not have, that has no meaning here, or whose value does not fit.

    Takes out `dataset` and `collate_fn`, which loaders make themselves. Ranks cannot share a sampler without a length, nor one that is
    divided already. Whole numbers of numpy become those of Python.
    """
    options.pop("dataset", None), options.pop("collate_fn", None)  # as those of torch_geometric do
    known = _OF_TORCH | (_OF_LOADERS if issubclass(loader, NodeLoader | LinkLoader) else frozenset())
    for name in options.keys() - known:
        near = get_close_matches(name, sorted(_OF_TORCH), 1, 0.75)
        raise UsageError(f"{name}: {loader.__name__} has no such option; {f'use {near[0]}, or leave it out' if near else 'leave it out'}")
    for name, reason in _NOT_HERE.items():
        if options.get(name) is not None:
            raise UsageError(f"{name} was given, but {reason}; leave it out")
    if "batch_size" in options and options["batch_size"] is None:
        raise UsageError("batch_size was None; use a positive number")
    for name, least in (("batch_size", 1), ("num_workers", 0)):
        if name in options:
            if not is_whole(options[name], least):
                raise UsageError(f"{name} must be a whole number of at least {least}; got {options[name]!r}")
            options[name] = int(options[name])
    check_switches(**{name: options[name] for name in ("shuffle", "drop_last", "pin_memory") if options.get(name) is not None})
    for name in ("sampler", "batch_sampler"):
        if (order := options.get(name)) is None:
            continue
        if isinstance(order, str):
            raise UsageError(
                f"{name} orders the examples, as in torch; got {order!r}. Draw by another law with LaborLoader, LadiesLoader, "
                "FastGCNLoader or neighbor_sampler=BulkSampler(data, num_neighbors, sampler=...)"
            )
        if not isinstance(order, Iterable) and not hasattr(order, "__getitem__"):
            raise UsageError(f"{name} orders the examples, as in torch; got a {type(order).__name__}; use positions, or a sampler of torch")
        if several_ranks and not has_length(order):
            raise UsageError(f"{name} has no length, so ranks cannot share its mini-batches; give it a __len__, or use a list")
        if several_ranks and distributed_sampler(order) is not None:
            raise UsageError(f"comm divides the mini-batches among ranks, and so does your DistributedSampler; {_ONE_OF_THEM}")
        if options.get("shuffle"):
            raise UsageError(f"{name} orders the examples, and so does shuffle; use one of them")


def check_callables(**given: Any) -> None:
    """Raise `UsageError` for the first of some arguments that is neither None nor a function."""
    for name, value in given.items():
        if value is not None and not callable(value):
            raise UsageError(f"{name}: got a {type(value).__name__}; use a function, or leave it out")
