"""Compute the figures of docs/claims.md from the kept results: numbers, quotients, and differences that are paired by seed.

Every function returns the text of one figure, as a page shows it. A name of a page and its function meet in `claims.FIGURES`.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from statistics import mean, stdev
from typing import Any

import keep
from scipy.special import stdtrit

LADIES = "LADIES 512,512,512, batch 512"
SEEDS = 5  # of a difference, unless the page says otherwise
Row = dict[str, Any]


def one(rows: Iterable[Row], **keys: Any) -> Row:
    """Return the one row that has these values."""
    (found,) = (row for row in rows if all(row.get(key) == value for key, value in keys.items()))
    return found


def spread(values: list[float], digits: int = 1) -> str:
    """Format the mean and standard deviation of values, or the only one."""
    return f"{values[0]:.{digits}f}" if len(values) == 1 else f"{mean(values):.{digits}f} ± {stdev(values):.{digits}f}"


def span(values: Iterable[float], digits: int = 1) -> str:
    """Format the smallest and the largest of values."""
    found = sorted(values)
    return f"{found[0]:.{digits}f} to {found[-1]:.{digits}f}"


def interval(average: float, error: float, seeds: int, digits: int = 1, sign: str = "+") -> str:
    """Format an average over seeds and its 95 % interval by Student's t, from the standard error of the average.

    The number of seeds is shown if it is not the usual one.
    """
    half = float(stdtrit(seeds - 1, 0.975)) * error
    count = "" if seeds == SEEDS else f"; {seeds} seeds"
    return f"{average:{sign}z.{digits}f} [{bound(average - half, digits)}, {bound(average + half, digits)}{count}]"


def bound(value: float, digits: int) -> str:
    """Format the end of an interval, with one more digit if it would round to zero, so that its sign shows."""
    return f"{value:z.{digits + (value != 0 and round(value, digits) == 0)}f}"


def difference(own: dict[str, float], other: dict[str, float]) -> str:
    """Format the scores of one row minus those of another, in points, paired by the seeds that both have."""
    found = [own[seed] - other[seed] for seed in own if seed in other]
    return interval(mean(found), stdev(found) / len(found) ** 0.5, len(found))


def quotient(over: list[float], under: list[float], digits: int = 2) -> str:
    """Format the mean of quotients of two rows, paired by seed, with its 95 % interval."""
    found = [one / other for one, other in zip(over, under, strict=True)]
    return interval(mean(found), stdev(found) / len(found) ** 0.5, len(found), digits, sign="")


def by_seed(methods: list[Row], method: str, seeds: list[int]) -> dict[str, float]:
    """Return the accuracy of a method in percent, by seed, from the rows of `compare`."""
    values = one(methods, method=method)["score"]["values"]
    return {str(seed): 100 * value for seed, value in zip(seeds, values, strict=True)}


def compared(part: str, method: str, against: str = "full", theme: str = "compare") -> str:
    """Format the accuracy of a method of `compare` minus that of another, paired by seed."""
    found = keep.read(theme, part)
    return difference(*(by_seed(found["methods"], name, found["seeds"]) for name in (method, against)))


def per_round(graph: str, method: str, against: str, kind: str = "total", digits: int = 2) -> str:
    """Format the bytes of one kind that a method sends per round, over those of another."""
    rows = [one(keep.read("compare", graph)["methods"], method=name) for name in (method, against)]
    own, other = (row["bytes"][kind] / row["epochs"] for row in rows)
    return f"{own / other:.{digits}f}"


def whole_run(graph: str, method: str, against: str) -> str:
    """Format the bytes that a method sends in the whole run, over those of another."""
    own, other = (one(keep.read("compare", graph)["methods"], method=name)["bytes"]["total"] for name in (method, against))
    return f"{own / other:.1f}"


def modelled_seconds(graph: str) -> dict[str, list[float]]:
    """Return the seconds of whole runs at 10 Mbit/s, by the model, by method and in the order of the seeds."""
    rows = keep.read("compare", graph)["methods"]
    return {row["method"]: row["networks"]["ethernet-10g:between=1.25e6"]["seconds"]["values"] for row in rows}


def as_fast_as_full(graph: str, method: str) -> str:
    """Format the modelled seconds of `full` over those of a method, paired by seed."""
    seconds = modelled_seconds(graph)
    return quotient(seconds["full"], seconds[method], digits=1)


def trained() -> dict[str, Row]:
    """Return the rows on accuracy by name: `sage.dblp`, `sage@4.dblp` on four ranks, `pyg-full-128.dblp` on reduced features."""
    found = {}
    for row in (row for part in keep.load("accuracy").values() for row in part["result"]["rows"]):
        ranks = f"@{row['ranks']}" if row["ranks"] > 1 else ""
        width = f"-{row['width']}" if row["width"] else ""
        found[f"{row['sampler']}{ranks}{width}.{row['graph']}"] = row
    return found


def sampled(name: str) -> str:
    """Format the test accuracy of a row in percent."""
    return spread(trained()[name]["scores"])


def on_the_graph_of(name: str, row: str) -> str:
    """Return the name of a row on the graph of another: `full.dblp` for `full` and `ladies.dblp`."""
    return f"{row}.{name.partition('.')[2]}"


def sampled_minus(name: str, row: str) -> str:
    """Format the test accuracy of a row minus that of another row on the same graph, paired by seed."""
    rows = [trained()[one] for one in (name, on_the_graph_of(name, row))]
    return difference(*(dict(zip(map(str, row["seeds"]), row["scores"], strict=True)) for row in rows))


def replicated_features(ranks: int, replication: int) -> str:
    """Format the bytes of features in an epoch without replication, over those with it."""
    rows = keep.read("grid", "train")["results"]["train"]
    once, more = (one(rows, ranks=ranks, replication=c)["sent"]["features"] for c in (1, replication))
    return f"{once / more:.1f}"


def bulk_curve(sampler: str, minibatches: int, replication: int) -> str:
    """Format the words of `rows` over those of `owner` for a bulk of so many mini-batches per rank."""
    (points,) = (points for name, points in keep.read("exchange", "bulk")["results"].items() if name.startswith(sampler))
    return f"{one(points, minibatches=minibatches, replication=replication)['quotient']:.1f}"


def bulks_to_even(replication: int) -> str:
    """Format the number of LADIES bulks after which `owner` has sent less than `rows`: fewest and most over the bulk sizes."""
    (points,) = (points for name, points in keep.read("exchange", "bulk")["results"].items() if name.startswith("LADIES"))
    return span((point["even_after_bulks"] for point in points if point["replication"] == replication), 0)


def bulk_break_even() -> str:
    (found,) = (even for name, even in keep.read("exchange", "bulk")["break_even"].items() if name.startswith("GraphSAGE"))
    return f"{found['1']:.0f}"


def words(sampler: str) -> list[tuple[float, float, float, float]]:
    """Return the words of `rows` and `owner` per bulk, and those that each sends once per graph, of every grid where `owner` sends any."""
    policies = [[row[policy] for policy in ("rows", "owner")] for row in keep.read("exchange", "threads")["results"][sampler]]
    return [
        (*(policy["words"] - policy["once_bytes"] / 4 for policy in pair), *(policy["once_bytes"] / 4 for policy in pair))
        for pair in policies
        if pair[1]["words"]
    ]


def unequal_bytes() -> str:
    """Count the cases of policies and grids in which bytes differ from their prediction."""
    rows = [row for results in keep.read("exchange", "threads")["results"].values() for row in results]
    cases = [row[policy] for row in rows for policy in ("rows-oblivious", "rows", "owner")]
    return str(sum(case["bytes"] != case["predicted_bytes"] for case in cases))


def ladies_first_bulk() -> str:
    """Format the words of `owner` over those of `rows`, each with what it sends once, for the first LADIES bulk of every grid."""
    return span((owner + later) / (rows + first) for rows, owner, first, later in words(LADIES))


def ladies_break_even() -> str:
    """Format the number of LADIES bulks after which `owner` has sent less than `rows`, of every grid."""
    return span((ceil((later - first) / (rows - owner)) for rows, owner, first, later in words(LADIES)), 0)


def slow_sampling(rate: str, replication: int) -> str:
    """Format how many times as fast an epoch is sampled with `owner` as with `rows`: the extremes of the rounds."""
    lines = [row for row in keep.read("slow_network", "sample")["lines"] if row["rate"] == rate and row["replication"] == replication]
    rows, owner = (one(lines, exchange=policy)["seconds"] for policy in ("rows", "owner"))
    return span((rows["min"] / owner["max"], rows["max"] / owner["min"]))


def bulk(at: int) -> tuple[str, str]:
    """Format the milliseconds of a mini-batch in a bulk of so many: the median, and the extremes."""
    found = one(keep.read("growth", "bulk")["points"], at=at, threads=1)["processor_milliseconds"]
    return f"{found['median']:.1f}", span((found["min"], found["max"]))


def rounded(name: str) -> Any:
    return one(keep.read("adaqp", "accuracy")["planned"]["rows"], contestant="adaptive")[name]


def rounded_difference() -> str:
    """Format the accuracy of `adaqp` minus that of exact messages, paired by seed."""
    return interval(rounded("difference"), rounded("standard_error"), rounded("seeds"), digits=2)


def rounded_speed(rate: str) -> str:
    """Format the seconds of an exact epoch over those of a rounded one, paired by seed, with the interval of the quotient."""
    lines = keep.read("adaqp", "slow-network-seeds")["lines"]
    exact, own = (one(lines, rate=rate, method=method)["all_seconds"] for method in ("full", "adaqp:reassign-every=4"))
    return quotient(exact, own)


def staged_bytes(name: str, form: str) -> str:
    found = one(keep.read("retexo", "bytes-and-accuracy")["bytes"], name=name)
    return f"{found['published_ratio_formula'] if form == 'published' else found[form]['ratio']['everything']:.3g}"


def staged(graph: str, model: str) -> str:
    """Format the accuracy of `retexo` minus that of `full`, paired by seed."""
    row = one(keep.read("retexo", "bytes-and-accuracy")["accuracy"], graph=graph, model=model)
    found = row["difference"]
    return interval(found["mean"], found["error"], len(row["full"]["scores"]))


def fastest_other(graph: str) -> str:
    """Format the modelled seconds of the row that is fastest on average but for RETEXO over those of `retexo`, paired by seed."""
    seconds = modelled_seconds(graph)
    fastest = min((method for method in seconds if not method.startswith("retexo")), key=lambda method: mean(seconds[method]))
    return quotient(seconds[fastest], seconds["retexo"], digits=1)


def views(row: str, against: str, graph: str = "block-model", layers: int = 2) -> str:
    """Format the accuracy of one form of Grappa minus that of another, paired by seed."""
    rows = keep.read("grappa", "accuracy")["rows"]
    own, other = (one(rows, graph=graph, layers=layers, row=name)["scores"] for name in (row, against))
    return difference(own, other)


def shaped(method: str, rate: str = "100mbit") -> list[Row]:
    return [row for row in keep.read("grappa", "network")["rows"] if (row["method"], row["rate"]) == (method, rate)]


def fewer_bytes(changes: bool, first: bool) -> str:
    """Format the bytes of `sync` over those of `grappa` in the run, with or without its change of views and its first view."""
    quotients = []
    for own, other in zip(shaped("grappa:swap-every=3"), shaped("sync:graph=partitioned"), strict=True):
        steps = own["training_bytes"]["total"] - own["initial_bytes"] - own["repartition_bytes"]
        sent = steps + changes * own["repartition_bytes"] + first * own["initial_bytes"]
        quotients.append(other["training_bytes"]["total"] / sent)
    return f"{mean(quotients):.1f}"


def gradients_alone() -> str:
    """Format the bytes of `sync` over those of the gradients of `grappa`."""
    pairs = zip(shaped("sync:graph=partitioned"), shaped("grappa:swap-every=3"), strict=True)
    quotient = mean(other["training_bytes"]["total"] / own["training_bytes"]["gradients"] for other, own in pairs)
    return f"{quotient:.1f}"


def epoch_speed(method: str) -> str:
    """Format the seconds of an epoch of `sync` over those of a method, paired by seed, with the interval of the quotient."""
    return quotient(*([row["seconds_per_epoch"] for row in shaped(name)] for name in ("sync:graph=partitioned", method)), digits=1)


def times_scipy() -> str:
    names = ("rmat18, 1 thread", "rmat20, 1 thread", "products, 1 thread")
    results = [keep.read("ladies", name)["results"] for name in names]
    return span((found["scipy ladies"]["median"] / found["ladies"]["median"] for found in results), 0)


def labor(kind: str, part: str) -> str:
    """Format the vertices or edges of neighbor sampling over those of LABOR, or the time of LABOR over that of neighbor sampling."""
    own, other = (keep.read("laws", part)["results"][law] for law in ("labor", "uniform"))
    if kind == "time":
        own, other = own["processor_milliseconds"], other["processor_milliseconds"]
        return span((own["min"] / other["max"], own["max"] / other["min"]))
    return f"{other[kind] / own[kind]:.1f}"


def mean_gradient(view: str, weights: str, layers: int = 2, over_noise: bool = False) -> str:
    """Format the error of Grappa's mean gradient over the size of the exact one, or over the error of an unbiased one; mean over seeds."""
    row = one(keep.read("grappa", "gradient")["rows"], view=view, weights=weights, layers=layers)
    errors = row["error_of_mean"]
    return quotient(errors, row["noise"] if over_noise else [1.0] * len(errors))
