"""A plugin of pytest: puts the extension that ``SANITIZED_EXTENSION`` names in the place of the installed one."""

import importlib.util
import os
import sys

import bulksample

NAME = "bulksample._native"


def install(path: str) -> None:
    """Load an extension under the name of the installed one."""
    spec = importlib.util.spec_from_file_location(NAME, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[NAME] = bulksample._native = module  # type: ignore[attr-defined]


install(os.environ["SANITIZED_EXTENSION"])
