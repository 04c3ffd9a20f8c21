"""`bulksample data`: make, inspect, split and verify graphs; `data_import` imports them."""

from __future__ import annotations

import time
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import UsageError
from ..graph import Graph, Key
from ..log import warn
from . import data_import
from .data_import import NameOption, OutOption, begin, finish
from .output import Check, CheckOption, JsonOption, OverwriteOption, SeedOption, emit, hold_outputs

app = typer.Typer(no_args_is_help=True, help="Make, import, inspect and verify graphs.")
make = typer.Typer(no_args_is_help=True, help="Make a synthetic graph, equal on every machine.")
app.add_typer(make, name="make")
app.add_typer(data_import.app, name="import")

BackendOption = Annotated[str, typer.Option("--backend", help="Back end of the random numbers; all make the same graph.")]
StoreArgument = Annotated[Path, typer.Argument(help="Folder of a store.")]
HoldOut = StrEnum("HoldOut", ["edges", "both"])
Preset = StrEnum("Preset", ["products", "reddit"])


@make.command("rmat")
def make_rmat(
    out: OutOption,
    scale: Annotated[int, typer.Option(help="Base-2 logarithm of the number of vertices.")],
    edge_factor: Annotated[int, typer.Option(help="Pairs drawn per vertex.")] = 16,
    edges: Annotated[int | None, typer.Option(help="Pairs drawn in total, in place of --edge-factor.")] = None,
    a: Annotated[float, typer.Option(help="Probability of the upper left quadrant.")] = 0.57,
    b: Annotated[float, typer.Option(help="Probability of the upper right quadrant.")] = 0.19,
    c: Annotated[float, typer.Option(help="Probability of the lower left quadrant.")] = 0.19,
    directed: Annotated[bool, typer.Option("--directed", help="Do not add v -> u for every u -> v.")] = False,
    seed: SeedOption = 0, backend: BackendOption = "auto", name: NameOption = "", overwrite: OverwriteOption = False,
    json_file: JsonOption = None,
) -> None:  # fmt: skip
    """Make a skewed graph by recursive quadrants (R-MAT), with the parameters of Graph500."""
    from ..backends import make as make_backend
    from ..data.rmat import rmat

    start = begin(out, overwrite, json_file)
    graph = rmat(scale, edge_factor, edges=edges, a=a, b=b, c=c, seed=seed, directed=directed, backend=make_backend(backend))
    finish(graph, out, overwrite, name, start, json_file)


@make.command("dcsbm")
def make_dcsbm(
    out: OutOption,
    vertices: Annotated[int, typer.Option(help="Number of vertices, n.")],
    degree: Annotated[int, typer.Option(help="Mean degree: n * degree / 2 pairs are drawn, repetitions dropped.")],
    preset: Annotated[Preset, typer.Option(help="Data set that gives the parameters not set here.")] = Preset.products,
    classes: Annotated[int | None, typer.Option(help="Number of classes.")] = None,
    class_skew: Annotated[float | None, typer.Option(help="z: the share of class k is proportional to k^-z.")] = None,
    degree_spread: Annotated[float | None, typer.Option(help="sigma of the lognormal weights.")] = None,
    homophily: Annotated[float | None, typer.Option(help="h: share of pairs inside a community.")] = None,
    communities: Annotated[int | None, typer.Option(help="Communities of a class.")] = None,
    features: Annotated[int | None, typer.Option(help="Width of the feature rows.")] = None,
    class_signal: Annotated[float | None, typer.Option(help="Weight of the class in the features.")] = None,
    community_signal: Annotated[float | None, typer.Option(help="Weight of the community in the features.")] = None,
    label_noise: Annotated[float | None, typer.Option(help="rho: share of labels replaced at random.")] = None,
    train: Annotated[float | None, typer.Option(help="Share of training vertices.")] = None,
    val: Annotated[float | None, typer.Option(help="Share of validation vertices.")] = None,
    seed: SeedOption = 0, backend: BackendOption = "auto", name: NameOption = "", overwrite: OverwriteOption = False,
    json_file: JsonOption = None,
) -> None:  # fmt: skip
    """Make a degree-corrected stochastic block model with features that imitates ogbn-products or Reddit."""
    from ..backends import make as make_backend
    from ..data.dcsbm import PRESETS, dcsbm

    options = {
        "classes": classes, "class_skew": class_skew, "degree_spread": degree_spread, "homophily": homophily,
        "communities": communities, "features": features, "class_signal": class_signal,
        "community_signal": community_signal, "label_noise": label_noise, "train": train, "val": val,
    }  # fmt: skip
    changes: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    model = replace(PRESETS[preset.value], **changes)
    start = begin(out, overwrite, json_file)
    graph = dcsbm(vertices, degree, model, seed=seed, backend=make_backend(backend))
    finish(graph, out, overwrite, name or preset.value, start, json_file)


@make.command("hetero")
def make_hetero(
    out: OutOption,
    scale: Annotated[
        float, typer.Option(help="Million papers of a graph of papers, authors, institutes and fields, without --type.")
    ] = 0.001,
    type_: Annotated[list[str] | None, typer.Option("--type", help="Vertex type and its size, NAME:COUNT; repeat it.")] = None,
    relation: Annotated[list[str] | None, typer.Option(help="Relation, SOURCE:NAME:DESTINATION:EDGES drawn; repeat it.")] = None,
    parallel: Annotated[bool, typer.Option("--parallel", help="Keep edges that repeat others; by default the first stays.")] = False,
    power: Annotated[int, typer.Option(help="Sources are floor(n u^power) of a uniform u; 1 is uniform.")] = 2,
    features: Annotated[int, typer.Option(help="Width of the feature rows of each type.")] = 0,
    classes: Annotated[int, typer.Option(help="Classes of the first type.")] = 0,
    times: Annotated[int, typer.Option(help="Times of vertices are uniform below this; 0: none.")] = 0,
    edge_times: Annotated[int, typer.Option(help="Times of edges are uniform below this; 0: none.")] = 0,
    seed: SeedOption = 0, backend: BackendOption = "auto", name: NameOption = "", overwrite: OverwriteOption = False,
    json_file: JsonOption = None,
) -> None:  # fmt: skip
    """Make a heterogeneous graph: types and relations of any size, with a power law and times."""
    from ..backends import make as make_backend
    from ..data.hetero import hetero, papers, parse_relations, parse_types

    start = begin(out, overwrite, json_file)
    types, relations = (parse_types(type_), parse_relations(relation or [])) if type_ else papers(scale)
    if relation and not type_:
        raise UsageError("--relation: got no --type; name the types with --type NAME:COUNT")
    graph = hetero(
        types, relations, power=power, features=features, classes=classes, times=times, edge_times=edge_times, parallel=parallel, seed=seed,
        backend=make_backend(backend),
    )  # fmt: skip
    finish(graph, out, overwrite, name, start, json_file)


@app.command("info")
def info(
    store: StoreArgument,
    statistics: Annotated[bool, typer.Option("--statistics", help="Degrees, homophily, splits and times, from the graph itself.")] = False,
    check: CheckOption = Check.auto, overwrite: OverwriteOption = False, json_file: JsonOption = None,
) -> None:  # fmt: skip
    """Show the contents of a store, read from its manifest. Hashes are checked with --statistics or --check full."""
    from ..data import store as stores
    from ..data.describe import describe

    hold_outputs(overwrite, json_file)
    result = stores.info(store)
    if statistics or check == Check.full:
        graph = stores.load(store, features=check == Check.full, check=check)
        result = describe(graph, result) if statistics else result
    emit(result, json_file, str(store))


@app.command("split-edges")
def split_edges(
    store: StoreArgument, out: OutOption,
    relation: Annotated[
        str | None,
        typer.Option(help="Relation of a heterogeneous graph: its name, or SOURCE:NAME:DESTINATION. Its latest edges, if dated."),
    ] = None,
    val: Annotated[float, typer.Option(min=0, max=1, help="Share of edges held out for validation.")] = 0.05,
    test: Annotated[float, typer.Option(min=0, max=1, help="Share of edges held out for the test.")] = 0.1,
    negatives: Annotated[int, typer.Option(min=1, help="Negative vertices for each held-out edge.")] = 100,
    direction: Annotated[
        HoldOut,
        typer.Option("--hold-out", help="both: the reverse of a held-out edge leaves the graph too, if there is one."),
    ] = HoldOut.edges,
    seed: SeedOption = 0, check: CheckOption = Check.auto, overwrite: OverwriteOption = False, json_file: JsonOption = None,
) -> None:  # fmt: skip
    """Hold out edges of a store for link prediction; write a store without them, and the held-out edges beside it."""
    from ..data import store as stores
    from ..data.describe import summary
    from ..data.held_out_links import FILE, HELD_OUT
    from ..data.link_split import hold_out, reverses_left

    if (store / FILE).exists():
        raise UsageError(f"{store} holds out edges already; split the store that it was made of")
    if out.exists() and out.samefile(store):
        raise UsageError(f"{out} is the store that is split, and would lose its held-out edges; use another folder")
    start = begin(out, overwrite, json_file)
    whole = stores.load(store, check=check)
    split = hold_out(whole, _relation_to_split(whole, store, relation), val, test, negatives, seed, direction == HoldOut.both)
    links, titles, warnings = split.held_out, dict[str, Any](), list(split.warnings)
    assert links is not None
    manifest = stores.save(split, out, overwrite, links.save)
    if whole.plain:
        left = {part: sum(reverses_left(split, [part]).values()) for part in HELD_OUT}
    else:
        left = {":".join(key): share for key, share in reverses_left(split).items()}
        reverses = [":".join(key) for key in links.reverses]
        titles = {"relation": ":".join(links.relation), "reverses": reverses, "by_time": links.times is not None}
    if share := max(left.values(), default=0.0):
        where = f" ({', '.join(left)})" if titles else ""
        note = f"{share:.2g} of the held-out edges keep their reverse in the graph for training{where}, which gives them away"
        warn(f"{note}; use --hold-out both")
    warn(*warnings)
    figures = titles | {f"{part}_edges": len(links.pairs[part]) for part in HELD_OUT}
    figures |= {"negatives": negatives, "reverses_left": left, **({"warnings": warnings} if warnings else {})}
    emit({"store": str(out), **summary(manifest), **figures, "seconds": time.perf_counter() - start}, json_file, f"wrote {out}")


def _relation_to_split(graph: Graph, store: Path, relation: str | None) -> Key:
    """Return the key of the relation that the user names; a plain graph has one alone."""
    if graph.plain:
        if relation is not None:
            raise UsageError(f"--relation is for heterogeneous graphs; {store} holds a graph of one type: leave it out")
        return graph.relations[0].key
    known = ", ".join(":".join(one.key) for one in graph.relations) or "it has none"
    if relation is None:
        raise UsageError(f"{store} holds a heterogeneous graph; name the relation to predict with --relation: {known}")
    fit = [one.key for one in graph.relations if relation in (one.name, ":".join(one.key))]
    if len(fit) != 1:
        raise UsageError(f"--relation: {store} has {len(fit) or 'no'} relations {relation!r}; use SOURCE:NAME:DESTINATION of {known}")
    return fit[0]


@app.command("verify")
def verify(store: StoreArgument, overwrite: OverwriteOption = False, json_file: JsonOption = None) -> None:
    """Verify the hash of every file of a store. A damaged file gives exit code 65 and both hashes."""
    from ..data import store as stores

    hold_outputs(overwrite, json_file)
    start = time.perf_counter()
    digest = stores.verify(store).digest
    result = {"store": str(store), "ok": True, "digest": digest, "files": stores.sums(store), "seconds": time.perf_counter() - start}
    emit(result, json_file, str(store))
