"""`bulksample plan`: predict memory, traffic and time of every process grid and choose one, without a graph."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..config.file import Given
from ..data import store as stores
from ..data.manifest import Manifest
from ..errors import UsageError
from ..plan import Plan, PlanRequest, make_plan
from ..plan.explain import as_json
from ..plan.locality import sample_locality
from ..plan.measured import measure
from ..plan.profiles import network_named
from ..plan.relational import plan_relations
from .configured import Requested, configured
from .output import Check, CheckOption, JsonOption, OverwriteOption, emit, hold_outputs

# Columns of the table, and their keys in the JSON
_HELD = {"A": "graph", "H": "features", "bulk": "bulk", "activ.": "activations", "eval.": "evaluation"}
_SENT = {"topol.": "topology", "feat.": "features", "grad.": "gradients"}
_UNITS = {
    "memory": "bytes", "process": "bytes", "sampling": "edges/s", "operations": "/s",
    **dict.fromkeys(("latency", "latency_inside", "collective", "message"), "s"),
}  # fmt: skip  # all others: bytes/s
_SPENT = ("sample", "fetch", "compute", "reduce", "epoch", "evaluate")
_SIZES = ("vertices", "edges", "feature_width")
_OF_RELATIONS = ("ranks", "replication", "fanouts", "batch_size", "hidden", "exchange")


@configured(PlanRequest, from_file=False)
def plan(
    requested: Requested,
    store: Annotated[Path | None, typer.Option("--from", help="Store that gives the sizes of the graph and the number of seeds.")] = None,
    measured: Annotated[list[Path] | None, typer.Option(help="JSON of sample or train, used for estimates; may be repeated.")] = None,
    rates: Annotated[list[Path] | None, typer.Option(help="JSON of a benchmark, or of rates by name; may be repeated.")] = None,
    check: CheckOption = Check.auto, overwrite: OverwriteOption = False, json_file: JsonOption = None,
) -> None:  # fmt: skip
    """Predict memory, traffic and time of every process grid, and choose one.

    Nothing is run and no graph is read, except with --seed-locality: then some mini-batches are sampled from the graph of --from.
    """
    hold_outputs(overwrite, json_file)
    if store and not (schema := stores.manifest(store)).plain:
        result = _relational(requested, store, schema, {"--measured": measured, "--rates": rates})
        emit(result, json_file, "plan", table=False)
        if str(json_file) != "-":
            _show_relational(result)
        return
    sizes_given = [f"--{name}" for name in ("vertices", "edges", "seeds") if name in requested]
    if "seed_locality" in requested and (sizes_given or not store):
        remedy = f"got {', '.join(sizes_given)}: leave it out" if store else "use --from with a store or a folder of parts"
        raise UsageError(f"--seed-locality is planned by sampling the graph, from the training vertices of its store; {remedy}")
    for name, value in _sizes_of(store, check).items() if store else ():
        requested.setdefault(name, Given(value, str(store)))
    missing = [f"--{name.replace('_', '-')}" for name in _SIZES if name not in requested]
    if missing:
        raise UsageError(f"{', '.join(missing)} must be given; use --from DIR to take the sizes of a store")
    if "network" in requested:
        network_named(requested["network"].value)  # a file that is none ends with the exit code of bad data
    request = requested.config(PlanRequest)
    near = sample_locality(request, store, check) if store and request.seed_locality else None
    made = make_plan(request, measure(request, [*(rates or []), *(measured or [])]), near)
    result = as_json(made)
    emit(result, json_file, "plan", table=False)
    if str(json_file) != "-":
        _show(made, result)


def _relational(requested: Requested, directory: Path, manifest: Manifest, files: dict[str, Any]) -> dict[str, Any]:
    """Predict training on a heterogeneous store; raises `UsageError` for options that have no effect on it."""
    unread = [option.origin for name, option in requested.items() if name not in _OF_RELATIONS]
    unread += [flag for flag, paths in files.items() if paths]
    if unread:
        read = ", ".join(f"--{name.replace('_', '-')}" for name in _OF_RELATIONS)
        raise UsageError(f"{directory} is heterogeneous; its plan reads {read}, got {', '.join(unread)}: leave it out")
    vertices = manifest.vertices
    sizes = {"vertices": max(1, vertices), "edges": min(manifest.edges, vertices**2), "feature_width": 0}
    defaults = {name: Given(size, str(directory)) for name, size in sizes.items()}
    return plan_relations(manifest, Requested({**requested, **defaults}).config(PlanRequest))


def _show_relational(result: dict[str, Any]) -> None:
    """Print a line for each number of ranks and placement: MB that a rank holds, and MB that all ranks send in a step."""
    columns_held, sent = ("relations", "counts", "times", "features", "embeddings", "model", "total"), (*_SENT.values(), "total")
    print(f"{result['graph']}: predict {result['target']}, {result['parameters']} parameters")
    print("MB that a rank holds beside its process, mini-batches and buffers, then MB that all ranks send in a step")
    print(f"{'p':>5}{'c':>4}  {'topology':<12}{'features':<12}" + "".join(f"{name:>12}" for name in (*columns_held, *sent)))
    for row in result["rows"]:
        figures = [row["held"][name] for name in columns_held] + [row["bytes_of_a_step"][name] for name in sent]
        placed = f"{row['ranks']:>5}{row['replication']:>4}  {row['topology']:<12}{row['features']:<12}"
        print(placed + "".join(f"{size / 1e6:>12.4g}" for size in figures))


def _sizes_of(directory: Path, check: str) -> dict[str, Any]:
    """Return the sizes of a store, read from its manifest and its training mask."""
    import numpy as np

    from ..data.parts_manifest import graph_manifest, is_parts, load_parts
    from ..data.store import load_column
    from ..data.store_files import check_sums

    manifest = graph_manifest(directory)
    masks, dense = {name: manifest.arrays.get(f"mask.{name}") for name in ("train", "val", "test")}, manifest.arrays.get("features")
    marked: dict[str, int] = {}
    if is_parts(directory):
        seeds = sum(part.training_vertices for part in load_parts(directory).parts)
    else:
        check_sums(directory, [mask for mask in masks.values() if mask], check)
        marked = {name: int(np.count_nonzero(load_column(directory, f"mask.{name}"))) for name, mask in masks.items() if mask}
        seeds = marked.get("train", 0)
    return {
        "vertices": manifest.vertices, "edges": manifest.edges,
        "feature_width": manifest.num_features, "classes": max(1, manifest.num_classes),
        "feature_bytes": np.dtype(dense.dtype).itemsize if dense else 4, "weighted": "weights" in manifest.arrays, "seeds": seeds or None,
        "scored": marked.get("val", 0) + marked.get("test", 0) or None,
    }  # fmt: skip


def _show(made: Plan, result: dict[str, Any]) -> None:
    """Print the table, a line for each p and c; then the source of every rate, and the choice in sentences."""
    from rich.console import Console

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 160, highlight=False)
    title = f"GB a device holds ({made.budget / 1e9:.4g} usable), GB all devices send and seconds of an epoch; * is the choice for its p"
    table = _table(title, "", "p", "c", "graph", "k", *_HELD, "peak", *_SENT, *_SPENT)
    for row in result["rows"]:
        memory, sent = row["memory"], row["bytes_sent"]
        spent = row["seconds"] | {"evaluate": row["evaluation"]["seconds"] / row["evaluation"]["every"]}
        sizes = [*(memory[key] for key in _HELD.values()), memory["total"], *(sent[key] for key in _SENT.values())]
        table.add_row(
            "*" if row["chosen"] else "", str(row["ranks"]), str(row["replication"]), row["graph"][:4],
            str(row["bulk_size"]) if row["fits"] else "no", *[_figure(size / 1e9) for size in sizes],
            *[_figure(spent[key]) if row["fits"] else "" for key in _SPENT],
        )  # fmt: skip
    console.print(table)
    console.print(_placements(result["placements"]))
    for name, rate in result["rates"].items():
        if "origin" in rate:
            console.print(f"{name} {rate['value']:.4g} {_UNITS.get(name, 'bytes/s')}: {rate['origin']}, {rate['source']}", soft_wrap=True)
    for paragraph in result["explanation"]:
        console.print(f"\n{paragraph}", soft_wrap=True)


def _placements(rows: list[dict[str, Any]]) -> Any:
    """Return the table of placements: for each p, the best c of every pair of a topology and features."""
    title = "Placements of topology and features; GB, and seconds of an epoch with evaluation; * is the fastest"
    columns = ("", "p", "topology", "features", "c", "order", "fits", "device", "host", "sent", "between machines", "epoch")
    table = _table(title, *columns)
    for row in rows:
        sizes = (row["memory"]["total"], row["host_bytes_of_a_machine"], row["bytes_sent"]["total"], row["bytes_between_machines"])
        divided = "partitioned" in (row["topology"], row["features"])
        table.add_row(
            "*" if row["chosen"] else "", str(row["ranks"]), row["topology"], row["features"], str(row["replication"]) if divided else "",
            row["grid_order"] if divided else "", "yes" if row["fits"] else "no", *[_figure(size / 1e9) for size in sizes],
            _figure(row["seconds"]["with_evaluation"]) if row["fits"] else "",
        )  # fmt: skip
    return table


def _table(title: str, *columns: str) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(title=title, box=box.SIMPLE, padding=(0, 1))
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _figure(value: float) -> str:
    """Format a number with three digits, or two below one."""
    return f"{value:.3g}" if value >= 1 else f"{value:.2g}"
