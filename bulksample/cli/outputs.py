"""One rule for the results of every command: they can be written, and what exists is kept unless ``--overwrite`` is given.

The rule is checked at the start, before the work, and ends a command with exit code 2.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ..data.atomic import check_writable, is_device
from ..errors import UsageError

OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace results that exist.")]


def check_outputs(overwrite: bool, *files: Path | None) -> None:
    """Raise `UsageError` unless each file can be written, and none exists or `overwrite` is given.

    None and ``-`` stand for no file. Pipes and devices never exist in this sense. Missing folders above a file are made later.
    """
    named = [file for file in files if file is not None and str(file) != "-"]
    for number, file in enumerate(named):
        check_writable(file)
        if file.is_file() and not overwrite:
            raise UsageError(f"{file} exists already; use another file, or --overwrite")
        if not is_device(file) and os.path.realpath(file) in map(os.path.realpath, named[:number]):
            raise UsageError(f"two results would be written to {file}; use two files")


def check_folder(overwrite: bool, folder: Path | None) -> None:
    """Raise `UsageError` unless files can be written into a folder, and it is new or empty or `overwrite` is given."""
    if folder is None:
        return
    check_writable(folder / "file")
    if folder.is_dir() and any(folder.iterdir()) and not overwrite:
        raise UsageError(f"{folder} exists already and is not empty; use another folder, or --overwrite")
