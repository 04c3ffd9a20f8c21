"""Write the figures of docs/claims.md, and those of the notes that share them, from the kept results.

A page marks each figure with a name, as in ``0.165<!-- adaqp.bytes -->``. Here stands what each name is: a number of a `latest.json`, a
quotient of two, or a mean of differences that are paired by seed, with its interval. The command replaces the text before every mark.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import claim_figures as figures
import claim_figures_tma as averages
import keep

PAGE = Path(__file__).parents[1] / "docs" / "claims.md"
PAGES = (PAGE, *(keep.RESULTS / theme / "README.md" for theme in ("compare", "accuracy", "retexo", "adaqp", "grappa", "tma")))
_NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?"
_INTERVAL = rf"\[{_NUMBER}, {_NUMBER}(?:; \d+ seeds)?\]"
MARKED = re.compile(rf"{_NUMBER}(?: (?:±|to) {_NUMBER}| {_INTERVAL})?<!-- ([\w.:=@-]+) -->")

DRAWN = [name for name, row in figures.trained().items() if row["sampler"] in ("ladies", "fastgcn", "labor")]
MINUS = {"ladies": ("full", "fastgcn"), "fastgcn": ("full",), "labor": ("sage",)}  # rows that a row is compared with
COMPARED = ("cora", "dblp", "facebook-pagepage", "hard-sbm")
METHODS = (
    "sync", "retexo", "retexo-federated", "grappa", "cofree", "bns", "adaqp", "random-tma", "super-tma", "psgd-pa", "llcg",
    "sync:graph=partitioned",
)  # fmt: skip
SAMPLED = "sampled, strict, fresh"  # the views in which the bias of Grappa's weights is measured
LLCG = "llcg, 2 server steps - psgd-pa"
AVERAGED = {"whole": "whole graph", "llcg": "llcg, 2 server steps", **{name: name for name in ("random-tma", "super-tma", "psgd-pa")}}
WHOLE = {
    "cora": ("accuracy", "cora"), "dblp": ("accuracy", "dblp"), "facebook": ("accuracy", "facebook-pagepage"),
    "amazon": ("amazon-computers", "amazon-computers"), "hard": ("accuracy", "hard-sbm-5"),
}  # fmt: skip
DENSE = {"layer-norm": "amazon-computers", "plain": "amazon-computers-plain"}  # parts of `tma` on the dense graph
FIGURES: dict[str, Callable[[], str]] = {
    **{f"bulk.{name}-{at}": lambda a=at, i=index: figures.bulk(a)[i] for at in (1, 32) for index, name in enumerate(("time", "range"))},
    "bulk.unequal": figures.unequal_bytes,
    "bulk.owner-sage": lambda: figures.span(rows / owner for rows, owner, *_ in figures.words("GraphSAGE 15,10,5, batch 1024")),
    **{f"bulk.curve-{k}-{c}": lambda k=k, c=c: figures.bulk_curve("GraphSAGE", k, c) for k in (1, 4, 8, 16, 32) for c in (1, 2)},
    "bulk.curve-even": figures.bulk_break_even,
    **{f"bulk.ladies-{k}": lambda k=k: figures.bulk_curve("LADIES", k, 1) for k in (1, 32)},
    "bulk.ladies-bulks": lambda: figures.bulks_to_even(1),
    "bulk.owner-ladies": lambda: figures.span(rows / owner for rows, owner, *_ in figures.words(figures.LADIES)),
    "bulk.ladies-first": figures.ladies_first_bulk,
    "bulk.ladies-even": figures.ladies_break_even,
    "bulk.owner-10mbit": lambda: figures.slow_sampling("10mbit", 1),
    "bulk.owner-1gbit": lambda: figures.slow_sampling("1gbit", 1),
    "adaqp.difference": figures.rounded_difference,
    "adaqp.bytes": lambda: f"{figures.rounded('traffic'):.3f}",
    "adaqp.speed-none": lambda: figures.rounded_speed("none"),
    "adaqp.speed-10mbit": lambda: figures.rounded_speed("10mbit"),
    "adaqp.speed-100mbit": lambda: figures.rounded_speed("100mbit"),
    "adaqp.speed-1gbit": lambda: figures.rounded_speed("1gbit"),
    "retexo.sbm-full": lambda: figures.staged_bytes("sbm SAGE-64", "strong"),
    "retexo.sbm-naive": lambda: figures.staged_bytes("sbm SAGE-64", "naive"),
    "retexo.sbm-formula": lambda: figures.staged_bytes("sbm SAGE-64", "published"),
    "retexo.cora-full": lambda: figures.staged_bytes("cora GCN-128", "strong"),
    "retexo.facebook-full": lambda: figures.staged_bytes("facebook-pagepage 4714-d GCN-256", "strong"),
    "retexo.cora": lambda: figures.staged("cora", "gcn"),
    "retexo.citeseer": lambda: figures.staged("citeseer", "gcn"),
    "retexo.amazon": lambda: figures.staged("amazon-computers", "gcn"),
    "retexo.facebook": lambda: figures.staged("facebook-pagepage", "gcn"),
    "retexo.amazon-sage": lambda: figures.staged("amazon-computers", "sage"),
    "retexo.facebook-sage": lambda: figures.staged("facebook-pagepage", "sage"),
    "retexo.hard": lambda: figures.compared("hard-sbm", "retexo"),
    **{f"refine.{rounds}-{against}": lambda r=rounds, a=against: figures.compared("refine-hard-sbm", f"retexo:refine={r}", a, "retexo")
       for rounds in (10, 40, 100) for against in ("retexo", "full")},
    "refine.norm": lambda: figures.compared("refine-hard-sbm", "full:layer-norm=true", theme="retexo"),
    **{f"retexo.speed-{graph}": lambda g=graph: figures.as_fast_as_full(g, "retexo") for graph in COMPARED},
    **{f"retexo.fastest-{graph}": lambda g=graph: figures.fastest_other(g) for graph in COMPARED},
    "grappa.speed": lambda: figures.epoch_speed("grappa:swap-every=3"),
    "grappa.gradients": figures.gradients_alone,
    "grappa.steps": lambda: figures.fewer_bytes(changes=False, first=False),
    "grappa.changes": lambda: figures.fewer_bytes(changes=True, first=False),
    "grappa.all": lambda: figures.fewer_bytes(changes=True, first=True),
    "grappa.alone-2": lambda: figures.views("pair, strict, node", "alone, strict, uniform"),
    "grappa.alone-3": lambda: figures.views("pair, strict, node", "alone, strict, uniform", layers=3),
    "grappa.alone-4": lambda: figures.views("pair, strict, node", "alone, strict, uniform", layers=4),
    "grappa.weights-2": lambda: figures.views("pair, strict, node", "pair, strict, uniform"),
    "grappa.weights-3": lambda: figures.views("pair, strict, node", "pair, strict, uniform", layers=3),
    "grappa.weights-batch": lambda: figures.views("pair, strict, batch", "pair, strict, uniform"),
    "grappa.weights-cora": lambda: figures.views("pair, strict, node", "pair, strict, uniform", "cora"),
    "grappa.full": lambda: figures.views("pair, halo, node", "full graph"),
    "grappa.full-cora": lambda: figures.views("pair, halo, node", "full graph", "cora"),
    "grappa.gradient-halo": lambda: figures.mean_gradient("halo, static", "node, lambda of ESS"),
    "grappa.gradient-strict": lambda: figures.mean_gradient("strict, fresh", "node, lambda of ESS"),
    **{f"grappa.gradient-{weights.partition(',')[0]}-{layers}": lambda w=weights, n=layers: figures.mean_gradient(SAMPLED, w, n, True)
       for weights in ("tree", "node, lambda 1", "uniform") for layers in (2, 3)},
    "grappa.hard": lambda: figures.compared("hard-sbm", "grappa"),
    "grappa.hard-sync": lambda: figures.compared("hard-sbm", "grappa", "sync"),
    "tma.links-cora": lambda: averages.points("links-cora", "random-tma - psgd-pa", "cora"),
    "tma.links-cora-super": lambda: averages.points("links-cora", "super-tma - psgd-pa", "cora"),
    "tma.links-amazon": lambda: averages.points("links-amazon-computers", "random-tma - psgd-pa", "amazon-computers"),
    "tma.links-amazon-super": lambda: averages.points("links-amazon-computers", "super-tma - psgd-pa", "amazon-computers"),
    "tma.links-amazon-whole": lambda: averages.points("links-amazon-computers", "whole graph - random-tma", "amazon-computers"),
    "tma.cora": lambda: averages.points("accuracy", "random-tma - psgd-pa", "cora"),
    "tma.cora-super": lambda: averages.points("accuracy", "super-tma - psgd-pa", "cora"),
    "tma.facebook": lambda: averages.points("accuracy", "random-tma - psgd-pa", "facebook-pagepage"),
    "tma.facebook-super": lambda: averages.points("accuracy", "super-tma - psgd-pa", "facebook-pagepage"),
    "tma.amazon": lambda: averages.points("amazon-computers", "random-tma - psgd-pa", "amazon-computers"),
    "tma.amazon-super": lambda: averages.points("amazon-computers", "super-tma - psgd-pa", "amazon-computers"),
    **{f"tma.{name}.{row}": lambda p=part, r=whole: averages.score_of(p, r)
       for name, part in DENSE.items() for row, whole in AVERAGED.items()},
    **{f"tma.{name}.{row}-lost": lambda p=part, r=row: averages.cost_of(p, f"{r} lost a part")
       for name, part in DENSE.items() for row in ("random-tma", "super-tma", "psgd-pa")},
    **{f"tma.layer-norm.{row}-minus-psgd-pa": lambda r=whole: averages.cost_of(DENSE["layer-norm"], f"{r} - psgd-pa")
       for row, whole in AVERAGED.items() if row != "psgd-pa"},
    **{f"tma.gain.{row}": lambda r=whole: averages.with_layer_norm(r) for row, whole in AVERAGED.items()},
    "tma.plain.random": lambda: averages.points(DENSE["plain"], "random-tma - psgd-pa", "amazon-computers"),
    "tma.plain.super": lambda: averages.points(DENSE["plain"], "super-tma - psgd-pa", "amazon-computers"),
    **{f"tma.{name}-whole{end}": lambda p=part, g=graph, m=method: averages.points(p, f"whole graph - {m}", g)
       for name, (part, graph) in WHOLE.items() for end, method in (("", "super-tma"), ("-random", "random-tma"))},
    **{f"tma.lost-{name}{end}": lambda p=part, g=graph, m=method: averages.points(p, f"{m} lost a part", g)
       for name, (part, graph) in (WHOLE | {"plain": (DENSE["plain"], "amazon-computers")}).items()
       for end, method in (("", "super-tma"), ("-psgd", "psgd-pa"))},
    "tma.speed-full": lambda: averages.to_target("full"),
    "tma.speed-llcg": lambda: averages.to_target("llcg"),
    "llcg.hard": lambda: averages.points("accuracy", LLCG, "hard-sbm-5"),
    "llcg.cora": lambda: averages.points("accuracy", LLCG, "cora"),
    "llcg.links-cora": lambda: averages.points("links-cora", LLCG, "cora"),
    "llcg.links-amazon": lambda: averages.points("links-amazon-computers", LLCG, "amazon-computers"),
    "llcg.links-cora-slower": lambda: figures.difference(*averages.slower_server("cora")),
    "llcg.links-amazon-slower": lambda: averages.unpaired(*averages.slower_server("amazon-computers")),
    "llcg.hard-full": lambda: figures.compared("hard-sbm", "llcg"),
    "ladies.time": figures.times_scipy,
    **{f"labor.{kind}-{part}": lambda k=kind, p=part: figures.labor(k, p)
       for kind in ("vertices", "edges", "time") for part in ("rmat20", "confpapers")},
    **{name: lambda n=name: figures.sampled(n) for name in figures.trained()},
    **{f"{name}-minus-{row}": lambda n=name, r=row: figures.sampled_minus(n, r) for name in DRAWN for row in MINUS[name.partition(".")[0]]},
    **{f"{method}.{graph}-full": lambda m=method, g=graph: figures.compared(g, m)
       for method in ("bns", "cofree") for graph in ("cora", "facebook-pagepage", "hard-sbm")},
    **{f"minus-full.{graph}.{method}": lambda m=method, g=graph: figures.compared(g, m) for graph in COMPARED for method in METHODS},
    **{f"retexo.federated-{graph}": lambda g=graph: figures.whole_run(g, "full", "retexo-federated") for graph in COMPARED},
    **{f"llcg.fewer-{graph}": lambda g=graph: figures.per_round(g, "sync:graph=partitioned", "llcg", digits=1) for graph in COMPARED},
    **{f"{name}-minus-own": lambda n=name: figures.sampled_minus(n, n.partition(".")[0].replace("loader", "full"))
       for name, row in figures.trained().items() if row["sampler"] == "pyg-loader"},
    "bns.activations": lambda: figures.per_round("hard-sbm", "bns", "full", "activations"),
    "bns.all-facebook": lambda: figures.per_round("facebook-pagepage", "bns", "full"),
    **{f"bns.speed-{graph}": lambda g=graph: figures.as_fast_as_full(g, "bns") for graph in COMPARED},
    "bulk.features": lambda: figures.replicated_features(16, 8),
    "cofree.epoch": lambda: figures.epoch_speed("cofree"),
}  # fmt: skip


def write(text: str) -> str:
    """Return the text with the figure before every mark replaced by the one of its name."""
    return MARKED.sub(lambda mark: f"{FIGURES[mark[1]]()}<!-- {mark[1]} -->", text)


def write_claims() -> None:
    for page in PAGES:
        page.write_text(write(page.read_text()))
