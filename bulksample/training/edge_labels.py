"""Read the labelled edges of a run: their table, which every rank holds, and the rows of it to train on."""

from __future__ import annotations

from typing import Any

from ..config.train import TrainOptions
from ..data.edge_table import EdgeTable, read_edge_table
from ..distributed.comm.agree import made_alike
from ..distributed.comm.base import Comm
from ..errors import UsageError
from ..graph import EDGE, NODE, Graph, Key, Relation
from .edge_task import EdgeTask, check_timeless
from .source import Source, sizes_of

IN_MEMORY = "(in memory)"  # stands for the path of a table that was given itself


def read_edge_task(config: TrainOptions, source: Source, comm: Comm, given: Any = None) -> EdgeTask | None:
    """Read the table that `edge_labels` names, or take the `given` one; return None for other tasks. Collective.

    Raises, on every rank, `DataError` if the table is malformed or a pair names no vertex, and `UsageError` if it lacks labels or a split
    to train on, no relation or several may be meant, or two ranks read other numbers.
    """
    if config.task != "edges":
        return None

    def read() -> tuple[EdgeTask, dict[str, str], dict[str, str]]:
        named = f"edge_labels {config.edge_labels}"
        if given is None and config.edge_labels == IN_MEMORY:
            raise UsageError("edge_labels: these options are of a run whose table was in memory; give a file .npz, .csv or .parquet")
        table = read_edge_table(config.edge_labels if given is None else given, named, label=config.label, target=config.target)
        relation = check_pairs(table, source, config.target_relation)
        if not config.is_relational:
            check_timeless(table, str(sizes_of(source)["name"]))
        if table.target == "class" and table.num_classes < 2:
            raise UsageError(f"{named}: all known labels are class 0; a model needs at least two classes")
        split = config.seeds or table.default_split()
        if not len(rows := table.rows(split)):
            raise UsageError(f"{named}: no pair is in the split {split!r} to train on; use seeds all, or a split that holds some")
        return EdgeTask(table, relation, rows), {}, {named: table.identity}

    return made_alike(comm, read)


def check_pairs(table: EdgeTable, source: Source, relation: str | None) -> Key:
    """Return the relation whose ends the pairs of a table are, named or the only one.

    Raises `DataError` if a pair names no vertex, and `UsageError` if there is no such relation, or several and none is named.
    """
    if not isinstance(source, Graph):  # a store, of one relation
        n = int(sizes_of(source)["vertices"])
        table.check_ends((NODE, n), (NODE, n))
        return (NODE, EDGE, NODE)
    found = _relation(source, relation)
    table.check_ends(*((name, source.type(name).count) for name in (found.source, found.destination)))
    return found.key


def _relation(graph: Graph, name: str | None) -> Relation:
    if name is not None:
        return graph.relation(name)
    if len(graph.relations) != 1:
        known = ", ".join(":".join(one.key) for one in graph.relations)
        raise UsageError(f"target_relation: graph {graph.name!r} has {len(graph.relations)} relations, {known}; name the one of the pairs")
    return graph.relations[0]
