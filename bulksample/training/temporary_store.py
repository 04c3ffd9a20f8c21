"""A graph in memory as a store, for a run that divides it over ranks: block rows are read from a store."""

from __future__ import annotations

from tempfile import TemporaryDirectory

from ..data import store
from ..data.atomic import temporary_folder
from ..distributed.comm.agree import together
from ..distributed.comm.base import Comm
from ..graph import Graph
from .source import Source


def readable(source: Source, needs_store: bool, comm: Comm) -> tuple[Source, TemporaryDirectory[str] | None]:
    """Return the graph in a form that ranks can open; collective.

    If they need a store (see `Method.needs_store`), a graph in memory is written as one in the folder for temporary files, once on each
    machine. All ranks have the same graph. No bytes of it travel.

    Returns
    -------
    source : Source
        As it was given, or the path of the store.
    folder : TemporaryDirectory, optional
        On a rank that wrote a store, which is deleted with this object, at the latest when the process ends in good order. A process that
        is killed, or exits at once because a peer was lost, leaves the folder behind; the next run on that machine removes it.

    Raises
    ------
    UsageError
        On every rank, if the disk is full or cannot be written.
    """
    if not isinstance(source, Graph) or not needs_store:
        return source, None
    writer = [int((comm.machine_of == machine).argmax()) for machine in comm.machine_of][comm.rank]

    def write() -> TemporaryDirectory[str] | None:
        if writer != comm.rank:
            return None
        folder = temporary_folder("graph")
        store.save(source, f"{folder.name}/graph")
        return folder

    folder = together(comm, write)
    paths = comm.gather_control(f"{folder.name}/graph" if folder else "")
    return paths[writer], folder
