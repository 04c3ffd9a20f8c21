"""Methods: what reduces communication, each as the few hooks of the one training loop that it changes."""

from __future__ import annotations

from ..errors import UsageError
from .base import Method

METHODS: dict[str, type[Method]] = {method.name: method for method in (Method,)}

__all__ = ["METHODS", "Method", "make"]


def make(name: str) -> Method:
    """The method of that name; raises `UsageError` where there is none."""
    if name not in METHODS:
        raise UsageError(f"there is no method {name!r}; {', '.join(METHODS)} would fit")
    return METHODS[name]()
