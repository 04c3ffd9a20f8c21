"""Connect to other libraries: loaders for training loops, drop-in loaders, and conversions of graphs.

loader, batch           `bulksample.Loader` and `bulksample.Batch`, for plain torch or numpy loops
convert                 graphs of torch_geometric and DGL as graphs of this package
pyg, dgl                drop-in loaders; each imports its library only when it is used
"""

from __future__ import annotations

import importlib
from typing import Any


def require(module: str, extra: str | None, instead: str = "") -> Any:
    """Import a module that an extra installs; a missing one raises ImportError, with one line that says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        fit = instead or f"use pip install 'bulksample[{extra}]'"
        raise ImportError(f"{module} is needed here, and cannot be imported ({error}); {fit}") from None
