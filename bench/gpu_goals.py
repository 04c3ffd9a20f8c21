"""Set the results of `gpu.py` beside the goals for one H200, line by line.

A line has what was measured, the goal, and their ratio: 1 or more if the goal is met. The goals hold for 1,024 seeds, fanouts 15, 10, 5 and
a graph like ogbn-products, deduplicated and renumbered. Some goals are measured as well: an epoch that overlaps its stages is no longer
than one that waits after each, the structure that is chosen to number vertices is the faster one, and ranks that share the card draw what
one does.
"""

from __future__ import annotations

from statistics import median
from typing import Any

ONE, LEAST, AIM = 1.5e9, 5e9, 10e9  # edges a second: of a bulk of one mini-batch; of 16 to 64, at least, and aimed at
COPY_SHARE = 0.85  # of the rate of a copy, for gathered rows
HOST_SECONDS = 100e-6  # of a bulk


def against(found: dict[str, Any]) -> dict[str, Any]:
    """Return the lines of the sections that were measured; a section that failed or was left out has its reason in their place."""
    lines: dict[str, Any] = {}
    for name, make in _SECTIONS.items():
        section = found.get(name, "not measured")
        if isinstance(section, dict):
            lines |= make(section, found)
        else:
            lines[name] = section
    return lines


def _line(measured: float, goal: float, lower: bool = False) -> dict[str, float]:
    return {"measured": measured, "goal": goal, "ratio": goal / measured if lower else measured / goal}


def _sampling(section: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    lines: dict[str, Any] = {}
    for k in (1, 16, 32, 64):
        if (own := section.get(f"k = {k}")) is None:
            continue
        rate = own["edges_per_second"]
        goals = {"": ONE} if k == 1 else {", at least": LEAST, ", aim": AIM}
        lines |= {f"edges a second, k = {k}{which}": _line(rate, goal) for which, goal in goals.items()}
        lines[f"seconds of the host for a bulk, k = {k}"] = _line(own["host_seconds"]["median"], HOST_SECONDS, lower=True)
    return lines


def _copying(section: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    shares = {name: share for name, share in section["share_of_copy"].items() if name != "copy"}
    return {f"share of copy bandwidth, {name}": _line(share, COPY_SHARE) for name, share in shares.items()}


def _baselines(section: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Our rate at 8 mini-batches in a bulk over that of each baseline, which draws as many."""
    sampling = found.get("sampling")
    ours = sampling.get("k = 8") if isinstance(sampling, dict) else None
    if ours is None:
        return {"baselines": "need sampling at k = 8"}
    return {
        f"edges a second against {name}": own if isinstance(own, str) else _line(ours["edges_per_second"], own["edges_per_second"])
        for name, own in section.items()
    }


def _layers(section: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """LADIES on the card against this machine's processors."""
    return {"seconds of LADIES against native": _line(*(section[name]["seconds"]["median"] for name in ("cuda", "native")), lower=True)}


def _training(section: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """An epoch in which the next bulk is sampled and rows are gathered meanwhile, against one that waits at the end of each phase."""
    return {"seconds of an epoch against the settled one": _line(*(median(section[name]["seconds"]) for name in _EPOCHS), lower=True)}


def _numbering(section: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """The rate with the structure that is chosen by size over that with the other one."""
    lines: dict[str, Any] = {}
    for k, own in section.items():
        chosen, others = own[own["chosen"]], [other for name, other in own.items() if name not in ("chosen", own["chosen"])]
        missing = next((one for one in (chosen, *others) if isinstance(one, str)), None)
        rates = [] if missing else [one["edges_per_second"] for one in (chosen, *others)]
        lines[f"edges a second, numbered as chosen, {k}"] = missing or _line(rates[0], max(rates[1:]))
    return lines


def _sharing(section: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Numbers of ranks whose digest is that of one rank, of all that were tried."""
    digests = section["digests"]
    return {"ranks that draw what one rank does": _line(sum(digest == digests["1"] for digest in digests.values()), len(digests))}


_EPOCHS = ("fp32", "fp32, settled")
_SECTIONS = {
    "sampling": _sampling, "numbering": _numbering, "copying": _copying, "training": _training, "baselines": _baselines, "layers": _layers,
    "sharing": _sharing,
}  # fmt: skip
