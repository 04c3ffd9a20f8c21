"""`bulksample data import`: import graphs from files; and what every command that writes a store does first and last."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ..data.edges import EdgeTally
from ..errors import UsageError, instead_of
from ..graph import Graph
from ..graph.labels import gap_warning
from ..log import warn
from .output import JsonOption, OverwriteOption, emit, ending, hold_checked, hold_outputs

app = typer.Typer(no_args_is_help=True, help="Import a graph from a file.")

OutOption = Annotated[Path, typer.Option("-o", "--out", callback=ending("--out"), help="Folder of the new store.")]
NameOption = Annotated[str, typer.Option("--name", help="Name of the graph.")]
UndirectedOption = Annotated[bool, typer.Option("--undirected/--directed", help="Add v -> u for every u -> v.")]
PathArgument = Annotated[Path, typer.Argument(help="File to import.")]
SelfLoops = StrEnum("SelfLoops", ["keep", "drop", "error"])
Duplicates = StrEnum("Duplicates", ["sum", "max", "error"])
ListedTwice = StrEnum("ListedTwice", ["sum", "max", "keep", "error"])
Ids = StrEnum("Ids", ["integer", "text"])
LoopsOption = Annotated[SelfLoops, typer.Option("--self-loops", help="Edges from a vertex to itself.")]
FeaturesOption = Annotated[Path | None, typer.Option("--features", help=".npy file of shape (n, f): row v belongs to vertex v.")]
LabelsOption = Annotated[
    Path | None, typer.Option("--labels", help=".npy file of classes of shape (n,), -1 for none, or of labels of shape (n, t).")
]
Target = StrEnum("Target", ["class", "multilabel", "regression"])
TimeUnit = StrEnum("TimeUnit", {"D": "D", "h": "h", "m": "m", "s": "s", "ms": "ms", "us": "us", "ns": "ns"})
AddReverseOption = Annotated[bool, typer.Option("--reverse", help="Add a relation rev_NAME against each relation NAME.")]
ReverseOption = Annotated[bool, typer.Option("--reverse/--no-reverse", help="Add the reverse of each relation.")]
TargetOption = Annotated[
    Target | None,
    typer.Option("--target", help="Labels as a class, several classes (multilabel), or numbers. Default: by their type."),
]
EdgeFeaturesOption = Annotated[
    Path | None, typer.Option("--edge-features", help=".npy file of shape (e, d): row i belongs to the i-th edge of the file.")
]
SplitOption = Annotated[
    Path | None, typer.Option("--split", help=".npz file with train, val and test: booleans of shape (n,), or vertex ids.")
]
ListedTwiceOption = Annotated[
    ListedTwice | None,
    typer.Option("--duplicates", help="Edges listed more than once: sum or max of weights (default sum); with times keep (the default)."),
]
TransposeOption = Annotated[bool, typer.Option("--transpose", help="Entry (i, j) is the edge i -> j.")]
DuplicatesOption = Annotated[Duplicates, typer.Option("--duplicates", help="Weight of an edge that is listed more than once.")]


def begin(out: Path, overwrite: bool, json_file: Path | None) -> float:
    """Refuse results that exist, cannot be written, or that another run writes, before any work; return the time."""
    from ..data.store import check_target

    hold_checked(lambda: check_target(out, overwrite), out)
    hold_outputs(overwrite, json_file)
    return time.perf_counter()


def finish(
    graph: Graph, out: Path, overwrite: bool, name: str, start: float, json_file: Path | None, tally: EdgeTally | None = None,
    imported: bool = False, read: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    """Save a graph as a store, and print its summary. An imported graph is read back and compared with its hashes."""
    from ..data.describe import summary
    from ..data.store import save, verify

    manifest = save(replace(graph, name=name or graph.name), out, overwrite)
    if imported or tally is not None:
        verify(out)
    result = {"store": str(out), **summary(manifest), "seconds": time.perf_counter() - start}
    if tally is not None or read is not None:
        result["read"] = read if tally is None else asdict(tally)
    warnings = [warning for part in graph.types if (warning := gap_warning(part.labels, part.num_classes))]
    if "read" in result:
        warnings += result["read"].pop("warnings", [])
    warn(*warnings)
    if warnings:
        result["warnings"] = warnings
    emit(result, json_file, f"wrote {out}")


@app.command("npz")
@app.command("hetero-npz", hidden=True)  # its name until 0.3
def import_npz(
    path: PathArgument, out: OutOption, reverse: AddReverseOption = False, undirected: UndirectedOption = False,
    transpose: TransposeOption = False, self_loops: LoopsOption = SelfLoops.keep, duplicates: ListedTwiceOption = None,
    features: FeaturesOption = None, labels: LabelsOption = None, split: SplitOption = None, target: TargetOption = None,
    name: NameOption = "", overwrite: OverwriteOption = False, json_file: JsonOption = None,
) -> None:  # fmt: skip
    """Import an .npz file: indptr and indices, edge_index, a matrix of scipy, the GNN benchmark, or arrays of several vertex types.

    The names of the arrays tell the form, which the result names. docs/data.md lists them.
    """
    from ..data.columns import read_columns
    from ..data.edges import add_reverses
    from ..data.npz import TYPES, read

    start, tally = begin(out, overwrite, json_file), EdgeTally()
    graph = read(
        path, target, undirected=undirected, transpose=transpose, self_loops=self_loops.value,
        duplicates=duplicates and duplicates.value, tally=tally,
    )  # fmt: skip
    several = tally.form == TYPES
    if reverse and not several:
        raise UsageError(f"{path.name} has one vertex type and no relations: --reverse does not apply; use --undirected")
    if features or labels or split:
        if several:
            raise UsageError(f"{path.name} has several vertex types: --features, --labels and --split do not apply; leave them out")
        graph = read_columns(graph, features, labels, split, target)
    finish(add_reverses(graph) if reverse else graph, out, overwrite, name, start, json_file, tally)


@app.command("edgelist")
def import_edgelist(
    path: PathArgument, out: OutOption, undirected: UndirectedOption = False,
    ids: Annotated[Ids, typer.Option(help="Kind of the vertex ids.")] = Ids.integer,
    vertices: Annotated[int | None, typer.Option(help="Number of vertices n, to keep ids 0 to n - 1 as they are.")] = None,
    self_loops: LoopsOption = SelfLoops.keep, duplicates: ListedTwiceOption = None,
    skip: Annotated[int, typer.Option(min=0, help="Lines to skip at the top.")] = 0,
    separator: Annotated[
        str | None, typer.Option(metavar="[blank|tab|,|;||]", help="Separator of the columns. Default: that of the first line.")
    ] = None,
    header: Annotated[
        bool | None, typer.Option("--header/--no-header", help="The first line names the columns. Default: if integer ids lie below.")
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(help="Uses of the columns in order, as source,target,-,time; or columns by name or number, as source=user,target=2."),
    ] = None,
    time_unit: Annotated[TimeUnit, typer.Option(help="Unit in which dates become times, counted from 1970.")] = TimeUnit.s,
    features: FeaturesOption = None,
    labels: LabelsOption = None, edge_features: EdgeFeaturesOption = None, split: SplitOption = None, target: TargetOption = None,
    name: NameOption = "", overwrite: OverwriteOption = False, json_file: JsonOption = None,
) -> None:  # fmt: skip
    """Import lines `u v` or `u v weight`, or columns that a header or --columns names; plain, gzip, bz2 or xz, with # or % comments."""
    from ..data.columns import read_columns
    from ..data.edgelist import read

    start, tally = begin(out, overwrite, json_file), EdgeTally()
    graph = read(
        path, undirected=undirected, ids=ids.value, vertices=vertices,
        self_loops=self_loops.value, duplicates=duplicates and duplicates.value, skip=skip, tally=tally, edge_features=edge_features,
        separator=separator, header=header, columns=columns, time_unit=time_unit.value,
    )  # fmt: skip
    graph = read_columns(graph, features, labels, split, target)
    finish(graph, out, overwrite, name, start, json_file, tally)


@app.command("mtx")
def import_mtx(
    path: PathArgument, out: OutOption, undirected: UndirectedOption = False,
    transpose: TransposeOption = False,
    self_loops: LoopsOption = SelfLoops.keep, duplicates: DuplicatesOption = Duplicates.sum, features: FeaturesOption = None,
    labels: LabelsOption = None, edge_features: EdgeFeaturesOption = None, split: SplitOption = None, target: TargetOption = None,
    name: NameOption = "", overwrite: OverwriteOption = False, json_file: JsonOption = None,
) -> None:  # fmt: skip
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


@app.command("ogb")
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
    self_loops: LoopsOption = SelfLoops.keep, reverse: AddReverseOption = False, target: TargetOption = None, name: NameOption = "",
    overwrite: OverwriteOption = False, json_file: JsonOption = None,
) -> None:  # fmt: skip
    """Import an OGB node property data set by its name or its folder. A missing data set is downloaded without a question."""
    from ..data.edges import add_reverses
    from ..data.ogb import is_heterogeneous, read
    from ..data.ogb_sets import SETS, locate
    from ..data.ogb_types import read as read_hetero

    if source not in SETS and not Path(source).exists():
        raise UsageError(f"{source} is neither a folder nor a data set; {instead_of(source, SETS)}")
    begin(out, overwrite, json_file)
    path = locate(source, root, download) if source in SETS and not Path(source).is_dir() else Path(source)
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


@app.command("parquet")
def import_parquet(
    path: Annotated[Path, typer.Argument(help="Folder of Parquet files with a schema file.")], out: OutOption,
    schema: Annotated[Path | None, typer.Option(help="YAML or JSON file of keys and times. Default: schema.yaml in the folder.")] = None,
    reverse: ReverseOption = True,
    time_unit: Annotated[TimeUnit, typer.Option(help="Unit in which dates become times, counted from 1970.")] = TimeUnit.s,
    until: Annotated[str | None, typer.Option(help="Last date or time; later rows are left out.")] = None,
    fit_until: Annotated[str | None, typer.Option(help="Last date or time whose rows scale the features. Default: all.")] = None,
    name: NameOption = "", overwrite: OverwriteOption = False, json_file: JsonOption = None,
) -> None:  # fmt: skip
    """Import tables with primary and foreign keys as a heterogeneous graph: rows are vertices, foreign keys are edges."""
    from ..data.tables.from_tables import read_folder

    start = begin(out, overwrite, json_file)
    last, fit = (int(one) if one is not None and one.lstrip("-").isdecimal() else one for one in (until, fit_until))
    graph, tables = read_folder(path, schema, reverse=reverse, time_unit=time_unit.value, until=last, fit_until=fit)
    finish(graph, out, overwrite, name, start, json_file, imported=True, read={"tables": tables})
