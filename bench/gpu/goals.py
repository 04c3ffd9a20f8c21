"""Set figures beside their goals for one H100 or H200, line by line.

A line has what was measured, the goal, and their ratio: 1 or more if the goal is met. The goals hold for 1,024 seeds, fanouts 15, 10, 5 and
a graph like ogbn-products, deduplicated and renumbered. Some goals are measured as well: an epoch that overlaps its stages is no longer
than one that waits after each, the structure that is chosen to number vertices is the faster one, and ranks that share the card draw what
one does. Where there is no goal, a line has the figure alone.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

ONE, LEAST, AIM = 1.5e9, 5e9, 10e9  # edges a second: of a bulk of one mini-batch; of 16 to 64, at least, and aimed at
COPY_SHARE = 0.85  # of the rate of a copy, for gathered rows
HOST_SECONDS = 100e-6  # of a bulk
WIDTH = 66  # of the names in a table

Line = dict[str, float] | str


def against(found: dict[str, Any]) -> dict[str, Line]:
    """Return the lines of the sections that were measured; a section that failed or was left out has its reason in their place."""
    lines: dict[str, Line] = {}
    for name, make in _SECTIONS.items():
        section = found.get(name, "not measured")
        if isinstance(section, dict):
            lines |= make(section, found)
        else:
            lines[name] = section
    return lines


def table(lines: dict[str, Line]) -> list[str]:
    """Return lines as text, of at most 120 characters each."""
    shown = [f"{'':{WIDTH}}{'measured':>12}{'goal':>12}{'ratio':>8}"]
    for name, line in lines.items():
        if isinstance(line, str):
            shown.append(f"{name:{WIDTH}}{line}"[:120])
        else:
            figures = [f"{line['measured']:12.4g}", *([f"{line['goal']:12.4g}{line['ratio']:8.2f}"] if "goal" in line else [])]
            shown.append(f"{name:{WIDTH}}" + "".join(figures))
    return shown


def _line(measured: float, goal: float, lower: bool = False) -> dict[str, float]:
    return {"measured": measured, "goal": goal, "ratio": goal / measured if lower else measured / goal}


def _sampling(section: dict[str, Any], found: dict[str, Any]) -> dict[str, Line]:
    lines: dict[str, Line] = {}
    for k in (1, 16, 32, 64):
        if (own := section.get(f"k = {k}")) is None:
            continue
        rate = own["edges_per_second"]
        goals = {"": ONE} if k == 1 else {", at least": LEAST, ", aim": AIM}
        lines |= {f"edges a second, k = {k}{which}": _line(rate, goal) for which, goal in goals.items()}
        lines[f"seconds of the host for a bulk, k = {k}"] = _line(own["host_seconds"]["median"], HOST_SECONDS, lower=True)
    return lines


def _samplers(section: dict[str, Any], found: dict[str, Any]) -> dict[str, Line]:
    """Show edges a second of each sampler on the card, alone and against this machine's processors."""
    return {f"edges a second of {name} against native": _line(own["times_native"], 1.0) for name, own in section.items()} | {
        f"edges a second of {name}": {"measured": own["edges_per_second"]} for name, own in section.items()
    }


def _copying(section: dict[str, Any], found: dict[str, Any]) -> dict[str, Line]:
    shares = {name: share for name, share in section["share_of_copy"].items() if name != "copy"}
    lines: dict[str, Line] = {f"share of copy bandwidth, {name}": _line(share, COPY_SHARE) for name, share in shares.items()}
    return {"bytes a second of a copy": {"measured": section["bytes_per_second"]["copy"]}, **lines}


def _sums(section: dict[str, Any], found: dict[str, Any]) -> dict[str, Line]:
    """Compare the seconds of sums over edges with other ways to make them."""
    return {f"sums over edges against {name}": _line(ratio, 1.0) for name, ratio in section["times_ours"].items()}


def _input_layer(section: dict[str, Any], found: dict[str, Any]) -> dict[str, Line]:
    """Divide the seconds of an input layer of gathered rows by those in place, by storage type."""
    return {
        f"input layer in place against gathered rows, {name}": _line(own["gathered_to_in_place"], 1.0)
        for name, own in section.items() if isinstance(own, dict)
    }  # fmt: skip


def _baselines(section: dict[str, Any], found: dict[str, Any]) -> dict[str, Line]:
    """Divide our rate at 8 mini-batches in a bulk by that of each baseline, which draws as many."""
    sampling = found.get("sampling")
    ours = sampling.get("k = 8") if isinstance(sampling, dict) else None
    if ours is None:
        return {"baselines": "need sampling at k = 8"}
    return {
        f"edges a second against {name}": own if isinstance(own, str) else _line(ours["edges_per_second"], own["edges_per_second"])
        for name, own in section.items()
    }


def _training(section: dict[str, Any], found: dict[str, Any]) -> dict[str, Line]:
    """Show epochs; compare one that samples and gathers meanwhile with one that waits at the end of each phase."""
    lines: dict[str, Line] = {f"seconds of an epoch, {name}": {"measured": median(own["seconds"])} for name, own in section.items()}
    lines |= {
        f"seconds of the host for a step, {name}": {"measured": sum(own["host_seconds_per_step"].values())}
        for name, own in section.items() if "host_seconds_per_step" in own
    }  # fmt: skip
    for name in ("fp32", "bf16"):
        if name in section:
            both = (median(section[which]["seconds"]) for which in (name, f"{name}, settled"))
            lines[f"seconds of an epoch, {name}, against the settled one"] = _line(*both, lower=True)
    return lines


def _traced(section: dict[str, Any], found: dict[str, Any]) -> dict[str, Line]:
    """Show the share of the time in which the device did nothing, and what overlapped in a step."""
    lines: dict[str, Line] = {f"idle share of a device's time, {name}": {"measured": own["idle_share"]} for name, own in section.items()}
    during = section.get("training step", {}).get("during_training", {})
    return lines | {f"share of {stage} during which training ran": {"measured": share} for stage, share in during.items()}


def _counters(section: dict[str, Any], found: dict[str, Any]) -> dict[str, Line]:
    """Compare bytes of DRAM with those that were predicted."""
    return {f"bytes of DRAM, {name}": _line(own["bytes"], own["predicted"], lower=True) for name, own in section["parts"].items()}


def _library(name: str) -> Callable[[dict[str, Any], dict[str, Any]], dict[str, Line]]:
    def lines(section: dict[str, Any], found: dict[str, Any]) -> dict[str, Line]:
        rates = section["edges_per_second"]
        return {f"edges a second against {name}": _line(rates["ours"], rates["theirs"])}

    return lines


def _relations(section: dict[str, Any], found: dict[str, Any]) -> dict[str, Line]:
    lines: dict[str, Line] = {
        f"edges a second on relations, {name}": {"measured": own["edges_per_second"]} for name, own in section["sampling"].items()
    }
    return lines | {
        f"seconds of an epoch on relations, {name}": {"measured": median(own["seconds"])} for name, own in section["training"].items()
    }


def _numbering(section: dict[str, Any], found: dict[str, Any]) -> dict[str, Line]:
    """Divide the rate with the structure that is chosen by size by that with the other one."""
    lines: dict[str, Line] = {}
    for k, own in section.items():
        chosen, others = own[own["chosen"]], [other for name, other in own.items() if name not in ("chosen", own["chosen"])]
        missing = next((one for one in (chosen, *others) if isinstance(one, str)), None)
        rates = [] if missing else [one["edges_per_second"] for one in (chosen, *others)]
        lines[f"edges a second, numbered as chosen, {k}"] = missing or _line(rates[0], max(rates[1:]))
    return lines


def _sharing(section: dict[str, Any], found: dict[str, Any]) -> dict[str, Line]:
    """Count the numbers of ranks whose digest is that of one rank, of all that were tried."""
    digests = section["digests"]
    return {"ranks that draw what one rank does": _line(sum(digest == digests["1"] for digest in digests.values()), len(digests))}


_SECTIONS = {
    "sampling": _sampling, "samplers": _samplers, "numbering": _numbering, "copying": _copying, "sums": _sums, "input_layer": _input_layer,
    "traced": _traced, "training": _training, "relations": _relations, "baselines": _baselines, "counters": _counters, "bf16": _training,
    "sharing": _sharing, **{name: _library(name) for name in ("torch_geometric", "dgl", "pylibcugraph", "quiver")},
}  # fmt: skip
