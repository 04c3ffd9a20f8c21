"""Options that several commands read the same way."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from ..errors import UsageError

GraphOption = Annotated[
    str | None, typer.Option(help="replicated: whole on every rank; partitioned: in block rows. The method decides unless given.")
]
ReplicationOption = Annotated[int, typer.Option(min=1, help="c of the p/c x c process grid, where the graph is partitioned.")]
ExchangeOption = Annotated[str, typer.Option(help="owner, rows or rows-oblivious, where the graph is partitioned.")]
PartitionOption = Annotated[str, typer.Option(help="block, random, metis, super, or a file that `bulksample partition` wrote.")]


def fanout_list(text: str) -> tuple[int, ...]:
    """``15,10,5`` or ``15-10-5`` as numbers; raises `UsageError`."""
    parts = text.split(",") if "," in text or text.lstrip("-").isdigit() else text.split("-")
    try:
        return tuple(int(part) for part in parts)
    except ValueError:
        raise UsageError(f"fanouts must be whole numbers joined by commas; got {text!r}; 15,10,5 would fit") from None


def sampler_options(text: str | None) -> dict[str, Any]:
    """``replace=true,walk_length=3`` as keyword arguments of a sampler; raises `UsageError`."""
    options: dict[str, Any] = {}
    for part in text.split(",") if text else []:
        key, equals, value = part.partition("=")
        if not equals:
            raise UsageError(f"sampler options must be NAME=VALUE joined by commas; got {part!r}")
        word = value.strip().lower()
        number = int(word) if word.lstrip("-").isdigit() else value.strip()
        options[key.strip().replace("-", "_")] = word == "true" if word in ("true", "false") else number
    return options


def bulk_size_of(text: str) -> int | Literal["auto"]:
    """``auto`` or a number; raises `UsageError`."""
    if text == "auto":
        return "auto"
    if not text.isdigit():
        raise UsageError(f"bulk-size must be 'auto' or a positive number; got {text!r}")
    return int(text)
