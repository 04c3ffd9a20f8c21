"""Damaged files: stores, checkpoints, and the input of importers and of --config.

A case passes if the command refuses the file by its exit code and one line, or if the file proves harmless: the command succeeds and all
results equal those of the whole file, bit for bit.
"""

from __future__ import annotations

import random
from typing import Any

from . import checkpoints, configs, imports, stores

GROUPS = {"stores": stores, "checkpoints": checkpoints, "imports": imports, "configs": configs}


def cases(seed: int) -> list[dict[str, Any]]:
    """Return the cases of all groups, shuffled, so that the first ones are a sample of all."""
    found = [{"group": name, **case} for name, group in GROUPS.items() for case in group.cases(seed)]
    random.Random(seed).shuffle(found)
    return found


def run(case: dict[str, Any]) -> dict[str, Any]:
    """Damage one file and use it."""
    outcome: dict[str, Any] = GROUPS[case["group"]].run(case)
    return outcome
