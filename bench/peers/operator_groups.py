"""Sum the time of a profile by groups of operators, such as elementwise passes, products and copies."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

# Everything inside these phases of the trainer belongs to one group.
PHASES = {"bulksample: sample": "sampling", "bulksample: fetch": "features", "bulksample: step": "optimizer"}
# The first pattern that is found in the name of one of torch's operators decides.
TORCH = {
    "matrix products": r"^(addmm|mm|matmul|bmm|baddbmm|linear|mv|addmv)_?$",
    "dropout": r"bernoulli|dropout",
    "copies": r"copy|clone|^(cat|contiguous|fill_|zero_|zeros|zeros_like|slice_backward)$",
    "elementwise": r"^(relu|threshold|elu|leaky|mul|div|add|sub|neg|sqrt|gt|lt|ge|where|masked|clamp|sum|mean|.*norm|reciprocal)",
    "loss": r"nll|softmax|cross_entropy",
}
OWN = {"our sparse products": r"OwnAndMean|Product|Spmm|Aggregate|Gather"}  # else our other passes
REST, OTHER_PASSES, TOP = "the rest", "our other passes", 12


def group(name: str) -> str:
    """Return the group of an operator outside PHASES: one of torch's by TORCH, a function of the package by OWN."""
    name = name.removeprefix("autograd::engine::evaluate_function: ")
    if name.startswith("aten::"):
        return next((found for found, pattern in TORCH.items() if re.search(pattern, name.removeprefix("aten::"))), REST)
    if re.fullmatch(r"_[A-Z]\w*", name):  # autograd functions of the package are private classes
        return next((found for found, pattern in OWN.items() if re.search(pattern, name)), OTHER_PASSES)
    return REST


def shares(events: Iterable[Any], steps: int) -> dict[str, Any]:
    """Return the time of a profile by group: shares of all time, milliseconds of a step, and the operators that take most.

    `events` are torch's `FunctionEvent`. The time of an event is its own, without that of the events inside it.
    """
    by_group, by_name = Counter[str](), Counter[str]()
    for event in events:
        found = _phase(event) or group(event.name)
        by_group[found] += event.self_cpu_time_total
        by_name[f"{event.name} ({found})"] += event.self_cpu_time_total
    total = sum(by_group.values()) or 1
    return {
        "shares": {name: round(spent / total, 4) for name, spent in by_group.most_common()},
        "milliseconds": {name: spent / 1e3 / steps for name, spent in by_group.most_common()},
        "operators": {name: round(spent / total, 4) for name, spent in by_name.most_common(TOP)},
    }


def _phase(event: Any) -> str | None:
    """Return the group of the phase that an event is in, if its phase has one."""
    while event is not None:
        if event.name in PHASES:
            return PHASES[event.name]
        event = event.cpu_parent
    return None
