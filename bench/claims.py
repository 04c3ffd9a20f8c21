"""Write the figures of docs/claims.md, of the note on accuracy, and the differences of that on `compare`, from the kept results.

    python bench/claims.py

A page marks each figure with a name, as in ``0.165<!-- adaqp.bytes -->``. Here stands what each name is: a number of a `latest.json`, a
quotient of two, or a mean of differences that are paired by seed, with its interval. The command replaces the text before every mark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from math import ceil
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import keep
from scipy.special import stdtrit

PAGE = Path(__file__).parents[1] / "docs" / "claims.md"
PAGES = (PAGE, keep.RESULTS / "compare" / "README.md", keep.RESULTS / "accuracy" / "README.md")
_NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?"
_INTERVAL = rf"\[{_NUMBER}, {_NUMBER}(?:; \d+ seeds)?\]"
MARKED = re.compile(rf"{_NUMBER}(?: (?:±|to) {_NUMBER}| {_INTERVAL})?<!-- ([\w.:=@-]+) -->")
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
    return f"{average:{sign}z.{digits}f} [{average - half:z.{digits}f}, {average + half:z.{digits}f}{count}]"


def difference(own: dict[str, float], other: dict[str, float]) -> str:
    """Format the scores of one row minus those of another, in points, paired by the seeds that both have."""
    found = [own[seed] - other[seed] for seed in own if seed in other]
    return interval(mean(found), stdev(found) / len(found) ** 0.5, len(found))


def points(part: str, what: str, graph: str) -> str:
    """Format a difference of two averaging methods, or what a lost part costs one, paired by seed."""
    found = one(keep.read("tma", part)["findings"], graph=graph, what=what)
    sign = "" if what.endswith("lost a part") else "+"
    return interval(found["points"], found["std"] / found["seeds"] ** 0.5, found["seeds"], sign=sign)


def by_seed(graph: str, method: str) -> dict[str, float]:
    """Return the accuracy of a method of `compare` in percent, by seed, over all calls that are kept."""
    calls = [part["result"] for name, part in keep.load("compare").items() if name.split(",")[0] == graph]
    found = [(call["seeds"], [row for row in call["methods"] if row["method"] == method]) for call in calls]
    return {
        str(seed): 100 * value for seeds, rows in found for row in rows for seed, value in zip(seeds, row["score"]["values"], strict=True)
    }


def compared(graph: str, method: str, against: str = "full") -> str:
    """Format the accuracy of a method of `compare` minus that of another, paired by seed."""
    return difference(by_seed(graph, method), by_seed(graph, against))


def fraction(graph: str, method: str, kind: str) -> str:
    """Format the bytes of one kind that a method sends per round, over those of `full`."""
    rows = [one(keep.read("compare", graph)["methods"], method=name) for name in (method, "full")]
    own, full = (row["bytes"][kind] / row["epochs"] for row in rows)
    return f"{own / full:.2f}"


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


def full_batch(name: str) -> str:
    """Return the name of the row that is trained by full batch on the same graph."""
    return f"full.{name.partition('.')[2]}"


def against_full(name: str) -> str:
    """Format the test accuracy of a row minus that of full batch, paired by seed."""
    rows = [trained()[one] for one in (name, full_batch(name))]
    return difference(*(dict(zip(map(str, row["seeds"]), row["scores"], strict=True)) for row in rows))


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


def rounded_speed(rate: str) -> str:
    found = keep.read("adaqp", "slow-network")
    lines = found["lines"] if rate in ("none", "10mbit") else found["apart"]["lines"]
    return f"{one(lines, rate=rate, method='adaqp:reassign-every=4')['times_as_fast']:.2f}"


def staged_bytes(name: str, form: str) -> str:
    found = one(keep.read("retexo", "bytes-and-accuracy")["bytes"], name=name)
    return f"{found['published_ratio_formula'] if form == 'published' else found[form]['ratio']['everything']:.3g}"


def staged(graph: str, model: str) -> str:
    """Format the accuracy of `retexo` minus that of `full`, paired by seed."""
    row = one(keep.read("retexo", "bytes-and-accuracy")["accuracy"], graph=graph, model=model)
    found = row["difference"]
    return interval(found["mean"], found["error"], len(row["full"]["scores"]))


def staged_speed(graph: str, fastest: bool) -> str:
    """Format the seconds of `full`, or of the fastest row but RETEXO's, over those of `retexo`: whole runs at 10 Mbit/s, by the model."""
    rows = keep.read("compare", graph)["methods"]
    seconds = {row["method"]: row["networks"]["ethernet-10g:between=1.25e6"]["seconds"]["mean"] for row in rows}
    others = [value for method, value in seconds.items() if not method.startswith("retexo")]
    return f"{(min(others) if fastest else seconds['full']) / seconds['retexo']:.1f}"


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
    """Format the seconds of an epoch of `sync` over those of a method, by seed."""
    pairs = zip(shaped("sync:graph=partitioned"), shaped(method), strict=False)
    quotients = [other["seconds_per_epoch"] / own["seconds_per_epoch"] for other, own in pairs]
    return span(quotients) if len(quotients) > 1 else f"{quotients[0]:.1f}"


def to_target(method: str) -> str:
    """Format the seconds of a method to the target over those of SuperTMA, by seed."""
    lines = [row for row in keep.read("tma_network", "dblp")["lines"] if row["rate"] == "100mbit"]
    options = ":epochs=40" if method == "full" else ":tolerate-failures=true:interval=1s:epochs=5"
    names = (f"{method}{options}", "super-tma:tolerate-failures=true:interval=1s:epochs=5")
    own, other = (one(lines, method=name)["reached"] for name in names)
    return span((mine[0] / its[0] for mine, its in zip(own, other, strict=True)), 2)


def times_scipy() -> str:
    names = ("rmat18, 1 thread", "rmat20, 1 thread", "products, 1 thread")
    results = [keep.read("ladies", name)["results"] for name in names]
    return span((found["scipy ladies"]["median"] / found["ladies"]["median"] for found in results), 0)


def labor(kind: str, part: str) -> str:
    """Format the vertices or edges of neighbor sampling over those of LABOR, or the time of LABOR over that of neighbor sampling."""
    own, other = (keep.read("laws", part)["results"][law] for law in ("labor", "uniform"))
    if kind == "time":
        return f"{own['processor_milliseconds']['median'] / other['processor_milliseconds']['median']:.1f}"
    return f"{other[kind] / own[kind]:.1f}"


def slower_server() -> str:
    """Format the MRR of LLCG with a tenth of the server's rate minus that of PSGD-PA, paired by seed."""
    other = one(keep.read("tma", "links-amazon-computers")["rows"], row="psgd-pa")["scores"]
    return difference(keep.read("tma", "links-amazon-computers-llcg")["rows"][0]["scores"], other)


LAYERWISE = [
    name
    for name, row in trained().items()
    if row["sampler"] in ("ladies", "fastgcn") and len(row["seeds"]) > 1 and full_batch(name) in trained()
]
COMPARED = ("cora", "dblp", "facebook-pagepage", "hard-sbm")
METHODS = (
    "sync", "retexo", "retexo-federated", "grappa", "cofree", "bns", "adaqp", "random-tma", "super-tma", "psgd-pa", "llcg",
    "sync:graph=partitioned",
)  # fmt: skip
LADIES = "LADIES 512,512,512, batch 512"
LLCG = "llcg, 2 server steps - psgd-pa"
FIGURES: dict[str, Callable[[], str]] = {
    **{f"bulk.{name}-{at}": lambda a=at, i=index: bulk(a)[i] for at in (1, 32) for index, name in enumerate(("time", "range"))},
    "bulk.unequal": unequal_bytes,
    "bulk.owner-sage": lambda: span(rows / owner for rows, owner, *_ in words("GraphSAGE 15,10,5, batch 1024")),
    **{f"bulk.curve-{k}-{c}": lambda k=k, c=c: bulk_curve("GraphSAGE", k, c) for k in (1, 4, 8, 16, 32) for c in (1, 2)},
    "bulk.curve-even": bulk_break_even,
    **{f"bulk.ladies-{k}": lambda k=k: bulk_curve("LADIES", k, 1) for k in (1, 32)},
    "bulk.ladies-bulks": lambda: bulks_to_even(1),
    "bulk.owner-ladies": lambda: span(rows / owner for rows, owner, *_ in words(LADIES)),
    "bulk.ladies-first": lambda: span((owner + later) / (rows + first) for rows, owner, first, later in words(LADIES)),
    "bulk.ladies-even": lambda: span((ceil((later - first) / (rows - owner)) for rows, owner, first, later in words(LADIES)), 0),
    "bulk.owner-10mbit": lambda: slow_sampling("10mbit", 1),
    "bulk.owner-1gbit": lambda: slow_sampling("1gbit", 1),
    "adaqp.difference": lambda: interval(rounded("difference"), rounded("standard_error"), rounded("seeds"), digits=2),
    "adaqp.bytes": lambda: f"{rounded('traffic'):.3f}",
    "adaqp.speed-none": lambda: rounded_speed("none"),
    "adaqp.speed-10mbit": lambda: rounded_speed("10mbit"),
    "adaqp.speed-100mbit": lambda: rounded_speed("100mbit"),
    "adaqp.speed-1gbit": lambda: rounded_speed("1gbit"),
    "retexo.sbm-full": lambda: staged_bytes("sbm SAGE-64", "strong"),
    "retexo.sbm-naive": lambda: staged_bytes("sbm SAGE-64", "naive"),
    "retexo.sbm-formula": lambda: staged_bytes("sbm SAGE-64", "published"),
    "retexo.cora-full": lambda: staged_bytes("cora GCN-128", "strong"),
    "retexo.facebook-full": lambda: staged_bytes("facebook-pagepage 4714-d GCN-256", "strong"),
    "retexo.cora": lambda: staged("cora", "gcn"),
    "retexo.citeseer": lambda: staged("citeseer", "gcn"),
    "retexo.amazon": lambda: staged("amazon-computers", "gcn"),
    "retexo.facebook": lambda: staged("facebook-pagepage", "gcn"),
    "retexo.hard": lambda: compared("hard-sbm", "retexo"),
    **{f"retexo.speed-{graph}": lambda g=graph: staged_speed(g, fastest=False) for graph in COMPARED},
    **{f"retexo.fastest-{graph}": lambda g=graph: staged_speed(g, fastest=True) for graph in COMPARED},
    "grappa.speed": lambda: epoch_speed("grappa:swap-every=3"),
    "grappa.gradients": gradients_alone,
    "grappa.steps": lambda: fewer_bytes(changes=False, first=False),
    "grappa.changes": lambda: fewer_bytes(changes=True, first=False),
    "grappa.all": lambda: fewer_bytes(changes=True, first=True),
    "grappa.alone-2": lambda: views("pair, strict, node", "alone, strict, uniform"),
    "grappa.alone-3": lambda: views("pair, strict, node", "alone, strict, uniform", layers=3),
    "grappa.alone-4": lambda: views("pair, strict, node", "alone, strict, uniform", layers=4),
    "grappa.weights-2": lambda: views("pair, strict, node", "pair, strict, uniform"),
    "grappa.weights-3": lambda: views("pair, strict, node", "pair, strict, uniform", layers=3),
    "grappa.weights-batch": lambda: views("pair, strict, batch", "pair, strict, uniform"),
    "grappa.weights-cora": lambda: views("pair, strict, node", "pair, strict, uniform", "cora"),
    "grappa.full": lambda: views("pair, halo, node", "full graph"),
    "grappa.full-cora": lambda: views("pair, halo, node", "full graph", "cora"),
    "grappa.hard": lambda: compared("hard-sbm", "grappa"),
    "grappa.hard-sync": lambda: compared("hard-sbm", "grappa", "sync"),
    "tma.links-cora": lambda: points("links-cora", "random-tma - psgd-pa", "cora"),
    "tma.links-cora-super": lambda: points("links-cora", "super-tma - psgd-pa", "cora"),
    "tma.links-amazon": lambda: points("links-amazon-computers", "random-tma - psgd-pa", "amazon-computers"),
    "tma.links-amazon-super": lambda: points("links-amazon-computers", "super-tma - psgd-pa", "amazon-computers"),
    "tma.links-amazon-whole": lambda: points("links-amazon-computers", "whole graph - random-tma", "amazon-computers"),
    "tma.cora": lambda: points("accuracy", "random-tma - psgd-pa", "cora"),
    "tma.cora-super": lambda: points("accuracy", "super-tma - psgd-pa", "cora"),
    "tma.facebook": lambda: points("accuracy", "random-tma - psgd-pa", "facebook-pagepage"),
    "tma.facebook-super": lambda: points("accuracy", "super-tma - psgd-pa", "facebook-pagepage"),
    "tma.amazon": lambda: points("amazon-computers", "random-tma - psgd-pa", "amazon-computers"),
    "tma.amazon-super": lambda: points("amazon-computers", "super-tma - psgd-pa", "amazon-computers"),
    "tma.hard-whole": lambda: points("accuracy", "whole graph - super-tma", "hard-sbm-5"),
    "tma.lost-cora": lambda: points("accuracy", "super-tma lost a part", "cora"),
    "tma.lost-cora-psgd": lambda: points("accuracy", "psgd-pa lost a part", "cora"),
    "tma.lost-facebook": lambda: points("accuracy", "super-tma lost a part", "facebook-pagepage"),
    "tma.lost-facebook-psgd": lambda: points("accuracy", "psgd-pa lost a part", "facebook-pagepage"),
    "tma.lost-hard": lambda: points("accuracy", "super-tma lost a part", "hard-sbm-5"),
    "tma.lost-hard-psgd": lambda: points("accuracy", "psgd-pa lost a part", "hard-sbm-5"),
    "tma.speed-full": lambda: to_target("full"),
    "tma.speed-llcg": lambda: to_target("llcg"),
    "llcg.hard": lambda: points("accuracy", LLCG, "hard-sbm-5"),
    "llcg.cora": lambda: points("accuracy", LLCG, "cora"),
    "llcg.links-cora": lambda: points("links-cora", LLCG, "cora"),
    "llcg.links-amazon": lambda: points("links-amazon-computers", LLCG, "amazon-computers"),
    "llcg.links-amazon-slower": slower_server,
    "llcg.hard-full": lambda: compared("hard-sbm", "llcg"),
    "ladies.time": times_scipy,
    **{f"labor.{kind}-{part}": lambda k=kind, p=part: labor(k, p)
       for kind in ("vertices", "edges", "time") for part in ("rmat20", "confpapers")},
    **{name: lambda n=name: sampled(n) for name in trained()},
    **{f"{name}-minus-full": lambda n=name: against_full(n) for name in LAYERWISE},
    **{f"{method}.{graph}-full": lambda m=method, g=graph: compared(g, m)
       for method in ("bns", "cofree") for graph in ("cora", "facebook-pagepage", "hard-sbm")},
    **{f"minus-full.{graph}.{method}": lambda m=method, g=graph: compared(g, m) for graph in COMPARED for method in METHODS},
    "bns.activations": lambda: fraction("hard-sbm", "bns", "activations"),
    "bns.all-facebook": lambda: fraction("facebook-pagepage", "bns", "total"),
    "cofree.epoch": lambda: epoch_speed("cofree"),
}  # fmt: skip


def write(text: str) -> str:
    """Return the text with the figure before every mark replaced by the one of its name."""
    return MARKED.sub(lambda mark: f"{FIGURES[mark[1]]()}<!-- {mark[1]} -->", text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(write(page.read_text()))
