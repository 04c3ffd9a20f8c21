"""Options that several commands of `bulksample data` share, and what they do first and last."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ..data.edges import EdgeTally
from ..graph import Graph
from ..graph.labels import gap_warning
from ..log import warn
from .output import emit, ending, hold_checked, hold_outputs

OutOption = Annotated[Path, typer.Option("-o", "--out", callback=ending("--out"), help="Folder of the new store.")]
NameOption = Annotated[str, typer.Option("--name", help="Name of the graph.")]
BackendOption = Annotated[str, typer.Option("--backend", help="Back end of the random numbers; all make the same graph.")]
UndirectedOption = Annotated[bool, typer.Option("--undirected/--directed", help="Add v -> u for every u -> v.")]
PathArgument = Annotated[Path, typer.Argument(help="File to import.")]
StoreArgument = Annotated[Path, typer.Argument(help="Folder of a store.")]


SelfLoops = StrEnum("SelfLoops", ["keep", "drop", "error"])
Duplicates = StrEnum("Duplicates", ["sum", "max", "error"])
Ids = StrEnum("Ids", ["integer", "text"])
HoldOut = StrEnum("HoldOut", ["edges", "both"])
Preset = StrEnum("Preset", ["products", "reddit"])

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
    gaps = [found for part in graph.types if (found := gap_warning(part.labels, part.num_classes))]
    warn(*gaps)
    if gaps:
        result["warnings"] = gaps
    emit(result, json_file, f"wrote {out}")


def backend_of(name: str) -> Any:
    """Return the back end of a name; imported here, so that the other commands start without it."""
    from ..backends import make as make_backend

    return make_backend(name)
