"""Compute the figures of averaged models: SuperTMA, RandomTMA, PSGD-PA and LLCG; see `claim_figures`."""

from __future__ import annotations

import keep
from claim_figures import difference, interval, one, span, spread
from scipy.stats import ttest_ind


def points(part: str, what: str, graph: str) -> str:
    """Format a difference of two averaging methods, or what a lost part costs one, paired by seed."""
    found = one(keep.read("tma", part)["findings"], graph=graph, what=what)
    sign = "" if what.endswith("lost a part") else "+"
    return interval(found["points"], found["std"] / found["seeds"] ** 0.5, found["seeds"], sign=sign)


def averaged(part: str) -> dict[str, dict[str, float]]:
    """Return the scores of a part of `tma` that has one graph, by row and by seed."""
    return {row["row"]: row["scores"] for row in keep.read("tma", part)["rows"]}


def score_of(part: str, row: str) -> str:
    """Format the scores of a row of `tma`: mean and standard deviation over seeds."""
    return spread(list(averaged(part)[row].values()))


def cost_of(part: str, what: str) -> str:
    """Format a finding of a part of `tma` that has one graph: mean and standard deviation over seeds."""
    found = one(keep.read("tma", part)["findings"], what=what)
    return f"{found['points']:{'' if what.endswith('lost a part') else '+'}.1f} ± {found['std']:.1f}"


def with_layer_norm(row: str) -> str:
    """Format the score of a row on `amazon-computers` with LayerNorm minus that without it, paired by seed."""
    return difference(*(averaged(part)[row] for part in ("amazon-computers", "amazon-computers-plain")))


def slower_server(graph: str) -> list[dict[str, float]]:
    """Return the MRR of LLCG with a tenth of the server's rate, and that of PSGD-PA, by seed."""
    (slower,), others = averaged(f"links-{graph}-llcg").values(), averaged(f"links-{graph}")
    return [slower, others["psgd-pa"]]


def unpaired(own: dict[str, float], other: dict[str, float]) -> str:
    """Format the scores of one row minus those of another that drew other held-out edges: Welch's 95 % interval."""
    samples = [list(scores.values()) for scores in (own, other)]
    low, high = ttest_ind(*samples, equal_var=False).confidence_interval(0.95)
    return f"{sum(samples[0]) / len(own) - sum(samples[1]) / len(other):+z.1f} [{low:z.1f}, {high:z.1f}]"


def to_target(method: str) -> str:
    """Format the seconds of a method to the target over those of SuperTMA, by seed."""
    lines = [row for row in keep.read("tma_network", "dblp")["lines"] if row["rate"] == "100mbit"]
    options = ":epochs=40" if method == "full" else ":tolerate-failures=true:interval=1s:epochs=5"
    names = (f"{method}{options}", "super-tma:tolerate-failures=true:interval=1s:epochs=5")
    own, other = (one(lines, method=name)["reached"] for name in names)
    return span((mine[0] / its[0] for mine, its in zip(own, other, strict=True)), 2)
