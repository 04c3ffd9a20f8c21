"""Drop-in loaders for other libraries, each imported only where it is used."""

from __future__ import annotations

import importlib
from typing import Any


def require(module: str, extra: str | None, instead: str = "") -> Any:
    """A module that an extra brings.

    Raises
    ------
    ImportError
        One line that says what to install, if the module is missing.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        fit = instead or f"pip install 'bulksample[{extra}]' would fit"
        raise ImportError(f"{module} is needed here, and cannot be imported ({error}); {fit}") from None
