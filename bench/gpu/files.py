"""The files of a run: what an earlier call found, logs, and the sources on which a section passed."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any


def earlier_sections(file: Path) -> dict[str, dict[str, Any]]:
    """Read what an earlier call found; a file that is damaged is put aside."""
    if not file.exists():
        return {}
    try:
        sections = json.loads(file.read_text(encoding="utf-8"))["sections"]
        return {name: dict(result) for name, result in sections.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        print(f"{file} cannot be read, all sections are run: {type(error).__name__}: {error}", flush=True)
        file.replace(file.with_suffix(".damaged"))
        return {}


def earlier(file: Path) -> dict[str, Any]:
    """Read the figures of earlier sections; none if the file is missing, or damaged, which is said."""
    if not file.exists():
        return {}
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        print(f"{file} cannot be read, and is written anew: {type(error).__name__}: {error}", flush=True)
        return {}


def write(file: Path, found: dict[str, Any]) -> None:
    """Write a file of JSON in one step."""
    part = file.with_suffix(".part")
    part.write_text(json.dumps(found, indent=1, default=str) + "\n")
    part.replace(file)


def read(file: Path) -> Any:
    """Read what a section wrote; a text that says so if it is damaged."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        return f"cannot be read: {error}"


def shorten(log: Path, largest: int) -> None:
    """Keep the first quarter and the last half of `largest` bytes of a longer log."""
    size = log.stat().st_size
    if size <= largest:
        return
    with log.open("rb") as whole:
        first = whole.read(largest // 4)
        whole.seek(size - largest // 2)
        last = whole.read()
    log.write_bytes(first + f"\n... {size - len(first) - len(last)} bytes left out ...\n".encode() + last)


def digest_of_sources() -> str:
    """Compute the digest of what sections run: one passed only if it did so on the same sources, and not in a rehearsal."""
    root, digest = Path(__file__).resolve().parents[2], hashlib.sha256(os.environ.get("REHEARSE", "").encode())
    for folder in ("bulksample", "csrc", "bench", "tests"):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix in (".py", ".cu", ".h", ".cpp", ".sh"):
                digest.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]
