"""`bulksample plan`: the largest k and c that fit, and what an epoch would send and take, for every p; no graph is needed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..config.options import fanout_list
from ..errors import UsageError
from .output import JsonOption, emit

if TYPE_CHECKING:
    from ..plan import Plan

# Columns of the table, and their keys in the JSON
_HELD = {"A": "graph", "H": "features", "bulk": "bulk", "activ.": "activations", "eval.": "evaluation"}
_SENT = {"topol.": "topology", "feat.": "features", "grad.": "gradients"}
_UNITS = {"memory": "bytes", "sampling": "edges/s", "operations": "/s", "latency": "s"}  # bytes a second where nothing is said
_SPENT = ("sample", "fetch", "compute", "reduce", "epoch")


def plan(
    vertices: Annotated[int | None, typer.Option(help="n.")] = None,
    edges: Annotated[int | None, typer.Option(help="Directed edges, as they are stored.")] = None,
    features: Annotated[int | None, typer.Option(help="Numbers in a feature row.")] = None,
    feature_bytes: Annotated[int | None, typer.Option(help="4 or 2 for each of them as it is held; 4 unless given.")] = None,
    feature_codec: Annotated[str, typer.Option(help="How features travel, as in train.")] = "fp32",
    weighted: Annotated[bool | None, typer.Option("--weighted", help="Edges have weights.")] = None,
    classes: Annotated[int | None, typer.Option(help="Of the labels; 2 unless given.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Training vertices; all unless given.")] = None,
    from_: Annotated[Path | None, typer.Option("--from", help="Take all of these from the manifest and the mask of a store.")] = None,
    sampler: Annotated[str, typer.Option(help="sage, ladies or fastgcn.")] = "sage",
    fanouts: Annotated[str, typer.Option(help="Per hop from the seeds on, a layer each; -1 takes all.")] = "15,10,5",
    frontier: Annotated[str, typer.Option(help="all or new, as in sample.")] = "all",
    batch_size: Annotated[int, typer.Option(help="Seeds of one minibatch, on one rank.")] = 1024,
    model: Annotated[str, typer.Option(help="sage or gcn.")] = "sage",
    hidden: Annotated[int, typer.Option(help="Width of the hidden layers.")] = 256,
    evaluation: Annotated[bool, typer.Option("--evaluation/--no-evaluation", help="Leave room for the exact evaluation of train.")] = True,
    ranks: Annotated[str, typer.Option(help="Numbers of ranks, a device each.")] = "4,8,16,32,64,128",
    replication: Annotated[str | None, typer.Option(help="Only these c; all that divide p unless given.")] = None,
    graph: Annotated[str, typer.Option(help="auto, replicated, partitioned, or published: A whole and H in block rows.")] = "auto",
    exchange: Annotated[str, typer.Option(help="owner, rows or rows-oblivious, where the graph is partitioned.")] = "owner",
    device: Annotated[str, typer.Option(help="a100-80gb, h200 or cpu.")] = "a100-80gb",
    device_memory: Annotated[str | None, typer.Option(help="Such as 80GB or 74.5GiB; the device's own unless given.")] = None,
    reserve: Annotated[float, typer.Option(help="Share of the memory that is left to the framework and to fragmentation.")] = 0.1,
    network: Annotated[str | None, typer.Option(help="perlmutter, hgx-h200, ethernet-10g or loopback.")] = None,
    devices_per_node: Annotated[int | None, typer.Option()] = None,
    latency: Annotated[float | None, typer.Option(help="Seconds before a message arrives.")] = None,
    inside: Annotated[float | None, typer.Option(help="Bytes a second from one device to others of its node.")] = None,
    between: Annotated[float | None, typer.Option(help="Bytes a second from one device to other nodes.")] = None,
    measured: Annotated[list[Path] | None, typer.Option(help="JSON of sample or train, for expectations; may be repeated.")] = None,
    rates: Annotated[list[Path] | None, typer.Option(help="JSON of a benchmark, or of rates by name; may be repeated.")] = None,
    json_file: JsonOption = None,
) -> None:
    """Predict memory, traffic and time of every process grid, and choose: nothing is run and no graph is read."""
    from ..plan import PlanRequest, make_plan
    from ..plan.measured import measure
    from ..plan.request import parse_bytes

    given = {
        "vertices": vertices, "edges": edges, "features": features, "feature_bytes": feature_bytes, "weighted": weighted,
        "classes": classes, "seeds": seeds,
    }  # fmt: skip
    graph_sizes = (_sizes_of(from_) if from_ else {}) | {key: value for key, value in given.items() if value is not None}
    missing = [f"--{key}" for key in ("vertices", "edges", "features") if key not in graph_sizes]
    if missing:
        raise UsageError(f"{', '.join(missing)} must be given; --from DIR would read the sizes of a store")
    request = PlanRequest.of(
        **graph_sizes, sampler=sampler, fanouts=fanout_list(fanouts), frontier=frontier, batch_size=batch_size, model=model, hidden=hidden,
        evaluation=evaluation, feature_codec=feature_codec, ranks=_numbers(ranks, "ranks"),
        replication=_numbers(replication, "replication") if replication else None, graph=graph, exchange=exchange, device=device,
        device_memory=parse_bytes(device_memory) if device_memory else None, reserve=reserve, network=network,
        devices_per_node=devices_per_node, latency=latency, inside=inside, between=between,
    )  # fmt: skip
    made = make_plan(request, measure(request, [*(rates or []), *(measured or [])]))
    emit(made.to_dict(), json_file, "plan", table=False)
    if str(json_file) != "-":
        _show(made)


def _sizes_of(directory: Path) -> dict[str, Any]:
    """The sizes of a store, from its manifest; of its arrays only the training mask is read."""
    import numpy as np

    from ..data.manifest import load_manifest
    from ..data.store import open_array

    manifest = load_manifest(directory)
    mask, dense = manifest.arrays.get("mask.train"), manifest.arrays.get("features")
    seeds = int(np.count_nonzero(open_array(directory, mask))) if mask else 0
    return {
        "vertices": manifest.vertices, "edges": manifest.edges, "features": manifest.num_features, "classes": max(1, manifest.num_classes),
        "feature_bytes": np.dtype(dense.dtype).itemsize if dense else 4, "weighted": "weights" in manifest.arrays, "seeds": seeds or None,
    }  # fmt: skip


def _numbers(text: str, what: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"{what} must be whole numbers joined by commas; got {text!r}; 4,8,16 would fit") from None


def _show(made: Plan) -> None:
    """The table, a line for each p and c, then where the rates come from and the choice in sentences."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    said = made.to_dict()
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 160, highlight=False)
    title = f"GB a device ({made.budget / 1e9:.4g} usable), GB all send and seconds an epoch takes; * is the choice for its p"
    table = Table(title=title, box=box.SIMPLE, padding=(0, 1))
    for name in ("", "p", "c", "graph", "k", *_HELD, "peak", *_SENT, *_SPENT):
        table.add_column(name, justify="right", no_wrap=True)
    for row in said["rows"]:
        held, sent, spent = row["memory"], row["bytes_sent"], row["seconds"]
        sizes = [*(held[key] for key in _HELD.values()), held["total"], *(sent[key] for key in _SENT.values())]
        table.add_row(
            "*" if row["chosen"] else "", str(row["ranks"]), str(row["replication"]), row["graph"][:4],
            str(row["bulk_size"]) if row["fits"] else "no", *[_figure(size / 1e9) for size in sizes],
            *[_figure(spent[key]) if row["fits"] else "" for key in _SPENT],
        )  # fmt: skip
    console.print(table)
    for name, rate in said["rates"].items():
        if "origin" in rate:
            console.print(f"{name} {rate['value']:.4g} {_UNITS.get(name, 'bytes/s')}: {rate['origin']}, {rate['source']}", soft_wrap=True)
    for paragraph in said["explanation"]:
        console.print(f"\n{paragraph}", soft_wrap=True)


def _figure(value: float) -> str:
    """Three digits, two below one."""
    return f"{value:.3g}" if value >= 1 else f"{value:.2g}"
