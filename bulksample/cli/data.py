"""`bulksample data`: make, import, inspect and verify graphs."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ..data.edges import EdgeTally
from ..errors import UsageError, instead_of
from . import hetero_data
from .data_options import (
    AddReverseOption,
    BackendOption,
    Duplicates,
    DuplicatesOption,
    EdgeFeaturesOption,
    FeaturesOption,
    HoldOut,
    Ids,
    LabelsOption,
    LoopsOption,
    NameOption,
    OutOption,
    PathArgument,
    Preset,
    SelfLoops,
    SplitOption,
    StoreArgument,
    TargetOption,
    UndirectedOption,
    backend_of,
    begin,
    finish,
    tell_reverses,
)  # fmt: skip
from .output import Check, CheckOption, JsonOption, OverwriteOption, SeedOption, emit, hold_outputs

app = typer.Typer(no_args_is_help=True, help="Make, import, inspect and verify graphs.")
make = typer.Typer(no_args_is_help=True, help="Make a synthetic graph, equal on every machine.")
import_ = typer.Typer(no_args_is_help=True, help="Import a graph from a file.")
app.add_typer(make, name="make")
app.add_typer(import_, name="import")
make.command("hetero")(hetero_data.make_hetero)
import_.command("hetero-npz")(hetero_data.import_hetero_npz)
import_.command("parquet")(hetero_data.import_parquet)


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
    seed: SeedOption = 0,
    backend: BackendOption = "auto",
    name: NameOption = "",
    overwrite: OverwriteOption = False,
    json_file: JsonOption = None,
) -> None:
    """Make a skewed graph by recursive quadrants (R-MAT), with the parameters of Graph500."""
    from ..data.rmat import rmat

    start = begin(out, overwrite, json_file)
    graph = rmat(scale, edge_factor, edges=edges, a=a, b=b, c=c, seed=seed, directed=directed, backend=backend_of(backend))
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
    seed: SeedOption = 0,
    backend: BackendOption = "auto",
    name: NameOption = "",
    overwrite: OverwriteOption = False,
    json_file: JsonOption = None,
) -> None:
    """Make a degree-corrected stochastic block model with features that imitates ogbn-products or Reddit."""
    from ..data.blockmodel import PRESETS
    from ..data.dcsbm import dcsbm

    given = {
        "classes": classes, "class_skew": class_skew, "degree_spread": degree_spread, "homophily": homophily,
        "communities": communities, "features": features, "class_signal": class_signal,
        "community_signal": community_signal, "label_noise": label_noise, "train": train, "val": val,
    }  # fmt: skip
    changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    model = replace(PRESETS[preset.value], **changes)
    start = begin(out, overwrite, json_file)
    graph = dcsbm(vertices, degree, model, seed=seed, backend=backend_of(backend))
    finish(graph, out, overwrite, name or preset.value, start, json_file)


@import_.command("npz")
def import_npz(
    path: PathArgument, out: OutOption, target: TargetOption = None, name: NameOption = "", overwrite: OverwriteOption = False,
    json_file: JsonOption = None,
) -> None:  # fmt: skip
    """Import an .npz file with indptr, indices, x, y and masks."""
    from ..data.npz import read

    start = begin(out, overwrite, json_file)
    finish(read(path, target), out, overwrite, name, start, json_file, imported=True)


@import_.command("edgelist")
def import_edgelist(
    path: PathArgument,
    out: OutOption,
    undirected: UndirectedOption = False,
    ids: Annotated[Ids, typer.Option(help="Kind of the vertex ids.")] = Ids.integer,
    vertices: Annotated[int | None, typer.Option(help="Number of vertices n, to keep ids 0 to n - 1 as they are.")] = None,
    self_loops: LoopsOption = SelfLoops.keep,
    duplicates: DuplicatesOption = Duplicates.sum,
    skip: Annotated[int, typer.Option(min=0, help="Lines to skip at the top.")] = 0,
    features: FeaturesOption = None,
    labels: LabelsOption = None,
    edge_features: EdgeFeaturesOption = None,
    split: SplitOption = None,
    target: TargetOption = None,
    name: NameOption = "",
    overwrite: OverwriteOption = False,
    json_file: JsonOption = None,
) -> None:
    """Import lines `u v` or `u v weight`, plain or gzip, with # or % comments."""
    from ..data.columns import read_columns
    from ..data.edgelist import read

    start, tally = begin(out, overwrite, json_file), EdgeTally()
    graph = read(
        path, undirected=undirected, ids=ids.value, vertices=vertices,
        self_loops=self_loops.value, duplicates=duplicates.value, skip=skip, tally=tally, edge_features=edge_features,
    )  # fmt: skip
    graph = read_columns(graph, features, labels, split, target)
    finish(graph, out, overwrite, name, start, json_file, tally)


@import_.command("mtx")
def import_mtx(
    path: PathArgument,
    out: OutOption,
    undirected: UndirectedOption = False,
    transpose: Annotated[bool, typer.Option("--transpose", help="Entry (i, j) is the edge i -> j.")] = False,
    self_loops: LoopsOption = SelfLoops.keep,
    duplicates: DuplicatesOption = Duplicates.sum,
    features: FeaturesOption = None,
    labels: LabelsOption = None,
    edge_features: EdgeFeaturesOption = None,
    split: SplitOption = None,
    target: TargetOption = None,
    name: NameOption = "",
    overwrite: OverwriteOption = False,
    json_file: JsonOption = None,
) -> None:
    """Import a Matrix Market file, whose matrix is the adjacency."""
    from ..data.columns import read_columns
    from ..data.matrixmarket import read

    start, tally = begin(out, overwrite, json_file), EdgeTally()
    graph = read(
        path, undirected=undirected, transpose=transpose, self_loops=self_loops.value, duplicates=duplicates.value, tally=tally,
        edge_features=edge_features,
    )  # fmt: skip
    graph = read_columns(graph, features, labels, split, target)
    finish(graph, out, overwrite, name, start, json_file, tally)


@import_.command("ogb")
def import_ogb(
    source: Annotated[str, typer.Argument(metavar="NAME|PATH", help="ogbn-arxiv, ogbn-products, …, or a folder with raw and split.")],
    out: OutOption,
    root: Annotated[Path, typer.Option(help="Folder of the data sets of OGB, for a NAME.")] = Path("dataset"),
    download: Annotated[bool, typer.Option("--download/--no-download", help="Download a NAME that is missing.")] = True,
    undirected: Annotated[bool | None, typer.Option("--undirected/--directed", help="Default: as ogb reads this data set.")] = None,
    scheme: Annotated[str | None, typer.Option(help="Folder inside split, if there are several.")] = None,
    features: Annotated[bool, typer.Option("--features/--no-features", help="Keep features, of vertices and of edges.")] = True,
    edge_features: Annotated[bool, typer.Option("--edge-features/--no-edge-features", help="Keep features of edges, by edge.")] = True,
    vertex_means: Annotated[
        bool, typer.Option("--vertex-means/--no-vertex-means", help="Without features of vertices, take means of those of their edges.")
    ] = True,
    self_loops: LoopsOption = SelfLoops.keep,
    reverse: AddReverseOption = False,
    target: TargetOption = None,
    name: NameOption = "",
    overwrite: OverwriteOption = False,
    json_file: JsonOption = None,
) -> None:
    """Import an OGB node property data set by its name or its folder. A missing data set is downloaded without a question."""
    from ..data.ogb import is_heterogeneous, read
    from ..data.ogb_sets import SETS, known, locate
    from ..data.relational.hetero_parts import add_reverses
    from ..data.relational.ogb_hetero import read as read_hetero

    if not known(source) and not Path(source).exists():
        raise UsageError(f"{source} is neither a folder nor a data set; {instead_of(source, SETS)}")
    begin(out, overwrite, json_file)
    path = locate(source, root, download) if known(source) and not Path(source).is_dir() else Path(source)
    out.parent.mkdir(parents=True, exist_ok=True)
    start, tally = time.perf_counter(), EdgeTally()
    if is_heterogeneous(path):
        if undirected is not None or self_loops != SelfLoops.keep:
            raise UsageError(f"{path.name} has several vertex types: --undirected, --directed and --self-loops do not apply; use --reverse")
        types = read_hetero(path, scheme=scheme, features=features, target=target, tally=tally)
        finish(add_reverses(types) if reverse else types, out, overwrite, name, start, json_file, tally)
        return
    if reverse:
        raise UsageError(f"{path.name} has one vertex type: --reverse does not apply; use --undirected")
    graph = read(
        path, undirected=undirected, scheme=scheme, features=features, edge_features=edge_features, vertex_means=vertex_means,
        self_loops=self_loops.value, tally=tally, scratch=out.parent, target=target,
    )  # fmt: skip
    finish(graph, out, overwrite, name, start, json_file, tally)


@app.command("info")
def info(
    store: StoreArgument,
    statistics: Annotated[bool, typer.Option("--statistics", help="Degrees, homophily, splits and times, from the graph itself.")] = False,
    check: CheckOption = Check.auto,
    overwrite: OverwriteOption = False,
    json_file: JsonOption = None,
) -> None:
    """Show the contents of a store, read from its manifest. Hashes are checked with --statistics or --check full."""
    from ..data import open_store as stores

    hold_outputs(overwrite, json_file)
    result = stores.info(store)
    if statistics or check == Check.full:
        graph = stores.load(store, features=check == Check.full, check=check)
        result = stores.describe(graph, result) if statistics else result
    emit(result, json_file, str(store))


@app.command("split-edges")
def split_edges(
    store: StoreArgument,
    out: OutOption,
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
    seed: SeedOption = 0,
    check: CheckOption = Check.auto,
    overwrite: OverwriteOption = False,
    json_file: JsonOption = None,
) -> None:
    """Hold out edges of a store for link prediction; write a store without them, and the held-out edges beside it."""
    from ..data import edge_split as links
    from ..data import open_store as stores

    hetero_data.check_split(store, out)
    start = begin(out, overwrite, json_file)
    whole = stores.load(store, check=check)
    if not whole.plain:
        asked = (val, test, negatives, seed, direction == HoldOut.both)
        hetero_data.split_relation(whole, store, out, overwrite, relation, asked, start, json_file)
        return
    if relation is not None:
        raise UsageError(f"--relation is for heterogeneous graphs; {store} holds a graph of one type: leave it out")
    graph, held = links.split_edges(whole, val, test, negatives, seed, direction == HoldOut.both)
    manifest = stores.save(graph, out, overwrite, held.save)
    left = links.reverses_left(graph, held)
    tell_reverses(max(left.values()))
    sizes = {f"{split}_edges": len(held.pairs[split]) for split in links.HELD_OUT} | {"negatives": negatives, "reverses_left": left}
    emit({"store": str(out), **stores.summary(manifest), **sizes, "seconds": time.perf_counter() - start}, json_file, f"wrote {out}")


@app.command("verify")
def verify(store: StoreArgument, overwrite: OverwriteOption = False, json_file: JsonOption = None) -> None:
    """Verify the hash of every file of a store. A damaged file gives exit code 65 and both hashes."""
    from ..data import open_store as stores

    hold_outputs(overwrite, json_file)
    start = time.perf_counter()
    manifest = stores.verify(store)
    result = {
        "store": str(store),
        "ok": True,
        "digest": manifest.digest,
        "files": stores.sums(store),
        "seconds": time.perf_counter() - start,
    }
    emit(result, json_file, str(store))
