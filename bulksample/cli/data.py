"""`bulksample data`: make, import, look at and check graphs."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ..data.edges import EdgeTally
from ..graph import Graph
from .output import JsonOption, SeedOption, emit

app = typer.Typer(no_args_is_help=True, help="Make, import, look at and check graphs.")
make = typer.Typer(no_args_is_help=True, help="Make a synthetic graph: the same one on every machine.")
import_ = typer.Typer(no_args_is_help=True, help="Read a graph that others wrote.")
app.add_typer(make, name="make")
app.add_typer(import_, name="import")

OutOption = Annotated[Path, typer.Option("-o", "--out", help="The folder of the new store.")]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace a store that is there already.")]
NameOption = Annotated[str, typer.Option("--name", help="What the graph calls itself.")]
BackendOption = Annotated[str, typer.Option("--backend", help="Who makes the random words; any makes the same graph.")]
UndirectedOption = Annotated[bool, typer.Option("--undirected/--directed", help="Add v -> u for every u -> v.")]
PathArgument = Annotated[Path, typer.Argument(help="What to read.")]
StoreArgument = Annotated[Path, typer.Argument(help="The folder of a store.")]


class SelfLoops(StrEnum):
    """What becomes of an edge from a vertex to itself."""

    keep = "keep"
    drop = "drop"
    error = "error"


class Duplicates(StrEnum):
    """What an edge weighs that is listed more than once."""

    sum = "sum"
    max = "max"
    error = "error"


class Ids(StrEnum):
    """How vertices are named in a file."""

    integer = "integer"
    text = "text"


class Preset(StrEnum):
    """The data set that a block model imitates."""

    products = "products"
    reddit = "reddit"


LoopsOption = Annotated[SelfLoops, typer.Option("--self-loops")]
FeaturesOption = Annotated[Path | None, typer.Option("--features", help="A .npy file of shape (n, f): row v belongs to vertex v.")]
LabelsOption = Annotated[
    Path | None, typer.Option("--labels", help="A .npy file of integers of shape (n,); -1 marks a vertex without one.")
]
SplitOption = Annotated[
    Path | None, typer.Option("--split", help="An .npz file with train, val and test: booleans of shape (n,), or vertex ids.")
]
DuplicatesOption = Annotated[Duplicates, typer.Option("--duplicates", help="What an edge weighs that is listed more than once.")]


@make.command("rmat")
def make_rmat(
    out: OutOption,
    scale: Annotated[int, typer.Option(help="The graph has 2**scale vertices.")],
    edge_factor: Annotated[int, typer.Option(help="Pairs drawn per vertex.")] = 16,
    edges: Annotated[int | None, typer.Option(help="Pairs drawn in all, instead.")] = None,
    a: float = 0.57,
    b: float = 0.19,
    c: float = 0.19,
    directed: Annotated[bool, typer.Option("--directed", help="Do not add v -> u for every u -> v.")] = False,
    seed: SeedOption = 0,
    backend: BackendOption = "auto",
    name: NameOption = "",
    overwrite: OverwriteOption = False,
    json_file: JsonOption = None,
) -> None:
    """A skewed graph by recursive quadrants, with the parameters of Graph500."""
    from ..data.rmat import rmat

    _check(out, overwrite)
    start = time.perf_counter()
    graph = rmat(scale, edge_factor, edges=edges, a=a, b=b, c=c, seed=seed, directed=directed, backend=_backend(backend))
    _finish(graph, out, overwrite, name, start, json_file)


@make.command("dcsbm")
def make_dcsbm(
    out: OutOption,
    vertices: Annotated[int, typer.Option(help="n")],
    degree: Annotated[int, typer.Option(help="n * degree / 2 pairs are drawn; repetitions are dropped.")],
    preset: Annotated[Preset, typer.Option(help="Where the parameters not given come from.")] = Preset.products,
    classes: int | None = None,
    class_skew: Annotated[float | None, typer.Option(help="z: class k has a share ∝ k^-z.")] = None,
    degree_spread: Annotated[float | None, typer.Option(help="sigma of the lognormal weights.")] = None,
    homophily: Annotated[float | None, typer.Option(help="h: the share of pairs inside a community.")] = None,
    communities: Annotated[int | None, typer.Option(help="K per class.")] = None,
    features: int | None = None,
    class_signal: Annotated[float | None, typer.Option(help="a")] = None,
    community_signal: Annotated[float | None, typer.Option(help="b")] = None,
    label_noise: Annotated[float | None, typer.Option(help="rho: the share of labels drawn anew.")] = None,
    train: Annotated[float | None, typer.Option(help="The share of training vertices.")] = None,
    val: Annotated[float | None, typer.Option(help="The share of validation vertices.")] = None,
    seed: SeedOption = 0,
    backend: BackendOption = "auto",
    name: NameOption = "",
    overwrite: OverwriteOption = False,
    json_file: JsonOption = None,
) -> None:
    """A degree-corrected stochastic block model with features: a stand-in for ogbn-products or Reddit."""
    from ..data.dcsbm import PRESETS, dcsbm

    given = {
        "classes": classes, "class_skew": class_skew, "degree_spread": degree_spread, "homophily": homophily,
        "communities": communities, "features": features, "class_signal": class_signal,
        "community_signal": community_signal, "label_noise": label_noise, "train": train, "val": val,
    }  # fmt: skip
    changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    model = replace(PRESETS[preset.value], **changes)
    _check(out, overwrite)
    start = time.perf_counter()
    graph = dcsbm(vertices, degree, model, seed=seed, backend=_backend(backend))
    _finish(graph, out, overwrite, name or preset.value, start, json_file)


@import_.command("npz")
def import_npz(
    path: PathArgument, out: OutOption, name: NameOption = "", overwrite: OverwriteOption = False, json_file: JsonOption = None
) -> None:
    """An .npz file with indptr, indices, x, y and masks."""
    from ..data.npz import read

    _check(out, overwrite)
    start = time.perf_counter()
    _finish(read(path), out, overwrite, name, start, json_file)


@import_.command("edgelist")
def import_edgelist(
    path: PathArgument,
    out: OutOption,
    undirected: UndirectedOption = False,
    ids: Annotated[Ids, typer.Option(help="What the ids of vertices are.")] = Ids.integer,
    vertices: Annotated[int | None, typer.Option(help="Take ids as they are, 0 to this number less one.")] = None,
    self_loops: LoopsOption = SelfLoops.keep,
    duplicates: DuplicatesOption = Duplicates.sum,
    skip: Annotated[int, typer.Option(min=0, help="Lines at the top that are no data.")] = 0,
    features: FeaturesOption = None,
    labels: LabelsOption = None,
    split: SplitOption = None,
    name: NameOption = "",
    overwrite: OverwriteOption = False,
    json_file: JsonOption = None,
) -> None:
    """Lines `u v` or `u v weight`, plain or gzip, with # or % comments."""
    from ..data.columns import read_columns
    from ..data.edgelist import read

    _check(out, overwrite)
    start, tally = time.perf_counter(), EdgeTally()
    graph = read(
        path, undirected=undirected, ids=ids.value, vertices=vertices,
        self_loops=self_loops.value, duplicates=duplicates.value, skip=skip, tally=tally,
    )  # fmt: skip
    graph = read_columns(graph, features, labels, split)
    _finish(graph, out, overwrite, name, start, json_file, tally)


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
    split: SplitOption = None,
    name: NameOption = "",
    overwrite: OverwriteOption = False,
    json_file: JsonOption = None,
) -> None:
    """A Matrix Market file: the matrix is the adjacency."""
    from ..data.columns import read_columns
    from ..data.matrixmarket import read

    _check(out, overwrite)
    start, tally = time.perf_counter(), EdgeTally()
    graph = read(path, undirected=undirected, transpose=transpose, self_loops=self_loops.value, duplicates=duplicates.value, tally=tally)
    graph = read_columns(graph, features, labels, split)
    _finish(graph, out, overwrite, name, start, json_file, tally)


@import_.command("ogb")
def import_ogb(
    source: Annotated[str, typer.Argument(metavar="NAME|PATH", help="ogbn-arxiv, ogbn-products, …, or a folder with raw and split.")],
    out: OutOption,
    root: Annotated[Path, typer.Option(help="Where OGB's data sets are, or shall be, for a NAME.")] = Path("dataset"),
    download: Annotated[bool, typer.Option("--download/--no-download", help="Get a NAME that is not there.")] = True,
    undirected: Annotated[bool | None, typer.Option("--undirected/--directed", help="The default is what ogb does for this set.")] = None,
    scheme: Annotated[str | None, typer.Option(help="The folder in split, where there are several.")] = None,
    features: Annotated[bool, typer.Option("--features/--no-features")] = True,
    self_loops: LoopsOption = SelfLoops.keep,
    name: NameOption = "",
    overwrite: OverwriteOption = False,
    json_file: JsonOption = None,
) -> None:
    """An OGB node property data set, by its name or its folder; what is not there is downloaded. Nothing is asked."""
    from ..data.ogb import read
    from ..data.ogb_sets import known, locate

    _check(out, overwrite)
    path = locate(source, root, download) if known(source) and not Path(source).is_dir() else Path(source)
    out.parent.mkdir(parents=True, exist_ok=True)
    start, tally = time.perf_counter(), EdgeTally()
    graph = read(
        path, undirected=undirected, scheme=scheme, features=features, self_loops=self_loops.value, tally=tally, scratch=out.parent
    )
    _finish(graph, out, overwrite, name, start, json_file, tally)


@app.command("info")
def info(
    store: StoreArgument,
    statistics: Annotated[bool, typer.Option("--statistics", help="Read the graph too: degrees, homophily, splits.")] = False,
    json_file: JsonOption = None,
) -> None:
    """What a store holds, from its manifest alone."""
    from ..data import store as stores
    from ..data.describe import describe

    result = stores.info(store)
    if statistics:
        result |= describe(stores.load(store, features=False))
    emit(result, json_file, str(store))


@app.command("split-edges")
def split_edges(
    store: StoreArgument,
    out: OutOption,
    val: Annotated[float, typer.Option(min=0, max=1, help="Share of the edges that is held out for validation.")] = 0.05,
    test: Annotated[float, typer.Option(min=0, max=1, help="Share that is held out for the test.")] = 0.1,
    negatives: Annotated[int, typer.Option(min=1, help="Vertices that each held-out edge is ranked among.")] = 100,
    seed: SeedOption = 0,
    overwrite: OverwriteOption = False,
    json_file: JsonOption = None,
) -> None:
    """A store without some of its edges, which are kept beside it: for link prediction."""
    from ..data import edge_split as links
    from ..data import store as stores
    from ..data.manifest import summary

    start = time.perf_counter()
    _check(out, overwrite)
    graph, held = links.split_edges(stores.load(store), val, test, negatives, seed)
    manifest = stores.save(graph, out, overwrite)
    held.save(out)
    told = {f"{split}_edges": len(held.pairs[split]) for split in links.HELD_OUT} | {"negatives": negatives}
    emit({"store": str(out), **summary(manifest), **told, "seconds": time.perf_counter() - start}, json_file, f"wrote {out}")


@app.command("verify")
def verify(store: StoreArgument, json_file: JsonOption = None) -> None:
    """Check a store to the last byte; exit code 65 and both sums where a file is damaged."""
    from ..data import store as stores

    start = time.perf_counter()
    manifest = stores.verify(store)
    files = {entry.file: entry.sha256 for entry in manifest.arrays.values()}
    result = {"store": str(store), "ok": True, "digest": manifest.digest, "files": files, "seconds": time.perf_counter() - start}
    emit(result, json_file, str(store))


def _check(out: Path, overwrite: bool) -> None:
    from ..data.store import check_target

    check_target(out, overwrite)  # before the work, not after it


def _finish(
    graph: Graph, out: Path, overwrite: bool, name: str, start: float, json_file: Path | None, tally: EdgeTally | None = None
) -> None:
    """Save what was made or read, and say what it is."""
    from ..data.manifest import summary
    from ..data.store import save

    manifest = save(replace(graph, name=name or graph.name), out, overwrite)
    result = {"store": str(out), **summary(manifest), "seconds": time.perf_counter() - start}
    if tally is not None:
        result["read"] = asdict(tally)
    emit(result, json_file, f"wrote {out}")


def _backend(name: str) -> Any:
    from ..backends import make as make_backend

    return make_backend(name)
