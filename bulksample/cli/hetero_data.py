"""`bulksample data` for heterogeneous graphs: make one, import files and tables."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UsageError
from ..log import warn
from .data_options import (
    AddReverseOption,
    BackendOption,
    NameOption,
    OutOption,
    PathArgument,
    ReverseOption,
    TargetOption,
    TimeUnit,
    backend_of,
    begin,
    finish,
    tell_reverses,
)
from .output import JsonOption, OverwriteOption, SeedOption, emit

if TYPE_CHECKING:
    from ..graph import Graph


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
    seed: SeedOption = 0,
    backend: BackendOption = "auto",
    name: NameOption = "",
    overwrite: OverwriteOption = False,
    json_file: JsonOption = None,
) -> None:
    """Make a heterogeneous graph: types and relations of any size, with a power law and times."""
    from ..data.relational.synthetic import hetero, papers, parse_relations, parse_types

    start = begin(out, overwrite, json_file)
    types, relations = (parse_types(type_), parse_relations(relation or [])) if type_ else papers(scale)
    if relation and not type_:
        raise UsageError("--relation: got no --type; name the types with --type NAME:COUNT")
    graph = hetero(
        types, relations, power=power, features=features, classes=classes, times=times, edge_times=edge_times, parallel=parallel, seed=seed,
        backend=backend_of(backend),
    )  # fmt: skip
    finish(graph, out, overwrite, name, start, json_file)


def import_hetero_npz(
    path: PathArgument, out: OutOption, reverse: AddReverseOption = False, target: TargetOption = None, name: NameOption = "",
    overwrite: OverwriteOption = False, json_file: JsonOption = None,
) -> None:  # fmt: skip
    """Import a heterogeneous graph from an .npz file with arrays named TYPE/x and SOURCE/NAME/DESTINATION/edge_index."""
    from ..data.relational.hetero_npz import read
    from ..data.relational.hetero_parts import add_reverses

    start = begin(out, overwrite, json_file)
    graph = read(path, target)
    finish(add_reverses(graph) if reverse else graph, out, overwrite, name, start, json_file, imported=True)


def import_parquet(
    path: Annotated[Path, typer.Argument(help="Folder of Parquet files with a schema file.")],
    out: OutOption,
    schema: Annotated[Path | None, typer.Option(help="YAML or JSON file of keys and times. Default: schema.yaml in the folder.")] = None,
    reverse: ReverseOption = True,
    time_unit: Annotated[TimeUnit, typer.Option(help="Unit in which dates become times, counted from 1970.")] = TimeUnit.s,
    until: Annotated[str | None, typer.Option(help="Last date or time; later rows are left out.")] = None,
    fit_until: Annotated[str | None, typer.Option(help="Last date or time whose rows scale the features. Default: all.")] = None,
    name: NameOption = "",
    overwrite: OverwriteOption = False,
    json_file: JsonOption = None,
) -> None:
    """Import tables with primary and foreign keys as a heterogeneous graph: rows are vertices, foreign keys are edges."""
    from ..data.relational.parquet_folder import read

    start = begin(out, overwrite, json_file)
    last, fit = (int(one) if one is not None and one.lstrip("-").isdecimal() else one for one in (until, fit_until))
    graph, tables = read(path, schema, reverse=reverse, time_unit=time_unit.value, until=last, fit_until=fit)
    finish(graph, out, overwrite, name, start, json_file, imported=True, read={"tables": tables})


def check_split(store: Path, out: Path) -> None:
    """Raise `UsageError` if edges are held out already, or if the store would replace itself."""
    from ..data.edge_split import FILE

    if (store / FILE).exists():
        raise UsageError(f"{store} holds out edges already; split the store that it was made of")
    if out.exists() and out.samefile(store):
        raise UsageError(f"{out} is the store that is split, and would lose its held-out edges; use another folder")


def split_relation(
    graph: Graph, store: Path, out: Path, overwrite: bool, relation: str | None,
    shares: tuple[float, float, int, int, bool], start: float, json_file: Path | None,
) -> None:  # fmt: skip
    """Hold out edges of the relation that the user names; `shares` are val, test, negatives, the seed and `both` of `hold_out`."""
    from ..data.edge_split import HELD_OUT
    from ..data.open_store import summary
    from ..data.relational import hetero_store
    from ..data.relational.link_split import hold_out, reverses_left

    known = ", ".join(":".join(one.key) for one in graph.relations) or "it has none"
    if relation is None:
        raise UsageError(f"{store} holds a heterogeneous graph; name the relation to predict with --relation: {known}")
    fit = [one.key for one in graph.relations if relation in (one.name, ":".join(one.key))]
    if len(fit) != 1:
        raise UsageError(f"--relation: {store} has {len(fit) or 'no'} relations {relation!r}; use SOURCE:NAME:DESTINATION of {known}")
    split = hold_out(graph, fit[0], *shares)
    held = split.held_out
    assert held is not None
    manifest = hetero_store.save(split, out, overwrite, held.save)
    figures = {
        "relation": ":".join(held.relation), "reverses": [":".join(key) for key in held.reverses], "by_time": held.times is not None,
        **{f"{part}_edges": len(held.pairs[part]) for part in HELD_OUT}, "negatives": shares[2],
    }  # fmt: skip
    left = reverses_left(split)
    figures["reverses_left"] = {":".join(key): share for key, share in left.items()}
    tell_reverses(max(left.values(), default=0.0), ", ".join(":".join(key) for key in left))
    warn(*split.warnings)
    if split.warnings:
        figures["warnings"] = list(split.warnings)
    emit({"store": str(out), **summary(manifest), **figures, "seconds": time.perf_counter() - start}, json_file, f"wrote {out}")
