"""Mini-batches for graph neural networks, sampled as sparse matrix products: the same bits on every machine.

    import bulksample as bs

    graph = bs.load("my-graph")
    loader = bs.Loader(graph, sampler="sage", fanouts=[15, 10, 5], batch_size=1024, seeds="train", seed=1)
    for batch in loader:                    # one epoch; loader.state_dict() resumes after any batch
        batch.vertices, batch.x             # the sampled vertices and their features
        batch.seeds, batch.y                # the seeds and their labels
        batch.blocks, batch.digest()        # the sampled edges, layer by layer, and their SHA-256
    report = bs.train(graph, method="sync", fanouts=[10, 10], epochs=5)

Get a graph
    load            open a store; graph.save(path) writes one. load(path, world=bs.init()) opens the share of one rank of several
    from_edges      from arrays of edges, features, labels and masks
    from_pyg        from a torch_geometric Data
    from_dgl        from a DGLGraph
    from_tables     from tables with primary and foreign keys
    Graph           what they return: adjacency, features, labels, splits
    Graph.of        vertices of several types (VertexType) and the relations between them (Relation), with times
    relation_from_edges     a Relation from arrays of edges

Sample it
    Loader          mini-batches with features and labels, for a training loop of your own; of several types by type, with times
    Batch           what it yields: torch tensors, or numpy arrays by Loader(out="numpy"); batch.to(device) puts it on a device
    TimeRule        which neighbors a seed of some time may draw
    samplers        GraphSAGE, LADIES, FastGCN, LABOR, full, ShaDow, GraphSAINT; samplers.make(name, fanouts)

Spread it
    init            connect the ranks of mpirun, srun or torchrun, for load(..., world=) and for DistributedDataParallel

Train on it
    train           train a model by any method, on one rank or under mpirun; returns a report
    TrainConfig     its options, checked before a run: TrainConfig.of(method="adaqp", epochs=10)
    Callback        what to do after each step and epoch: train(graph, callbacks=[...])
    predict         scores and embeddings of all vertices, by the model of a checkpoint

Work with the algebra
    LocalAdjacency, Adjacency       the matrix that samplers multiply with
    Selection, Stream               which vertices, and which random numbers
    MiniBatch, Block, digest        what a sampler returns
    CSR, backends                   sparse matrices, and where products run

Catch errors
    DataError, UsageError, BackendUnavailable, PeerLost

Names of earlier versions, which go with 0.3
    HeteroGraph     Graph.of; HeteroLoader and HeteroBatch: Loader and Batch; RankHeteroGraph: what load(path, world=) returns
    RelationSampler, UnionSampler   options of the samplers

Importing the package loads numpy alone. Each name is imported when it is first used.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from .graph import Graph
from .version import __version__

if TYPE_CHECKING:
    from . import backends, samplers
    from .adjacency import Adjacency
    from .data.from_edges import from_edges
    from .data.tables.from_tables import from_tables
    from .deprecated import HeteroBatch as HeteroBatch
    from .deprecated import HeteroGraph as HeteroGraph
    from .deprecated import HeteroLoader as HeteroLoader
    from .deprecated import RankHeteroGraph as RankHeteroGraph
    from .deprecated import RelationSampler as RelationSampler
    from .deprecated import UnionSampler as UnionSampler
    from .errors import BackendUnavailable, DataError, PeerLost, UsageError
    from .graph.minibatch import Block, MiniBatch, digest
    from .graph.selection import Selection
    from .graph.types import Relation, VertexType, relation_from_edges
    from .interop.batch import Batch
    from .interop.convert import from_dgl, from_pyg
    from .interop.loader import Loader
    from .interop.world import init, load
    from .local_adjacency import LocalAdjacency
    from .methods.config import TrainConfig
    from .methods.predict import Prediction
    from .rng import Stream
    from .samplers.time_rule import TimeRule
    from .sparse import CSR
    from .training.callbacks import Callback

_HOMES = {
    "Adjacency": "adjacency", "BackendUnavailable": "errors", "Batch": "interop.batch", "Block": "graph.minibatch", "CSR": "sparse",
    "Callback": "training.callbacks", "DataError": "errors", "HeteroBatch": "deprecated", "HeteroGraph": "deprecated",
    "HeteroLoader": "deprecated", "Loader": "interop.loader", "LocalAdjacency": "local_adjacency", "MiniBatch": "graph.minibatch",
    "PeerLost": "errors", "RankHeteroGraph": "deprecated", "Relation": "graph.types", "RelationSampler": "deprecated",
    "Selection": "graph.selection", "Stream": "rng", "TimeRule": "samplers.time_rule", "TrainConfig": "methods.config",
    "UnionSampler": "deprecated", "UsageError": "errors", "VertexType": "graph.types", "digest": "graph.minibatch",
    "from_dgl": "interop.convert", "from_edges": "data.from_edges", "from_pyg": "interop.convert", "from_tables": "data.tables.from_tables",
    "init": "interop.world", "load": "interop.world", "relation_from_edges": "graph.types",
}  # fmt: skip

__all__ = [
    "CSR", "Adjacency", "BackendUnavailable", "Batch", "Block", "Callback", "DataError", "Graph", "Loader", "LocalAdjacency", "MiniBatch",
    "PeerLost", "Relation", "Selection", "Stream", "TimeRule", "TrainConfig", "UsageError", "VertexType", "__version__", "backends",
    "digest", "from_dgl", "from_edges", "from_pyg", "from_tables", "init", "load", "predict", "relation_from_edges", "samplers", "train",
]  # fmt: skip


def train(graph: Graph | str | os.PathLike[str] | Any, /, **options: Any) -> dict[str, Any]:
    """Train a model on a graph and return a report. Needs torch: ``pip install 'bulksample[train]'``.

    Parameters
    ----------
    graph : Graph, the path of a store, or what ``load(path, world=…)`` returned
        A run that divides a graph in memory over ranks first writes it to the folder for temporary files, once on each machine. The ranks
        that opened a graph together train on its store, placed as they opened it.
    **options
        Those of ``bulksample train`` in the command line, with ``_`` for ``-``: ``method="sync"``, ``model="sage"``,
        ``fanouts=[10, 10]``, ``batch_size=1024``, ``epochs=10``, ``seed=0``, … `TrainConfig` lists them. `model` may be a torch module with
        ``forward(x, blocks)``; it is trained in place.
        Besides, `callbacks` takes a list of `Callback`, and `comm` a communicator: by default, that of all ranks that mpirun, srun or
        torchrun started.

    Returns
    -------
    dict
        ``test_accuracy`` at the best validation score, the losses, seconds by phase, bytes sent, and all options. ``stopped`` is True
        if Ctrl-C, SIGTERM, SIGUSR1 or SIGHUP ended the training after a step. A second Ctrl-C raises KeyboardInterrupt; a second SIGTERM
        ends the process.

    Raises
    ------
    UsageError
        If an option is unknown or out of range, or does not suit the graph.
    """
    from .methods.run import train as run

    return run(graph, **options)


def predict(
    graph: Graph | str | os.PathLike[str], checkpoint: str | os.PathLike[str], *, model: Any = None, at: int | None = None,
    pairs: Any = None,
) -> Prediction:  # fmt: skip
    """Compute class scores and embeddings of all vertices, or scores of pairs of them, by exact inference. Needs torch.

    Parameters
    ----------
    graph : Graph, or the path of a store
        With features as wide as those that the model was trained on; labels are not needed.
    checkpoint : path
        The ``checkpoint`` folder of a training run, or a folder ``step-...`` in it.
    model : nn.Module or str, optional
        For a run that trained a model of your own: the module, which takes the weights of the checkpoint in place, or its factory
        ``package.module:factory``.
    at : int, optional
        The time at which the vertices or pairs of a heterogeneous graph with times are asked about; by default that of each. A model of
        links needs it, unless there are pairs with times.
    pairs : path, dict, pandas.DataFrame or pyarrow.Table, optional
        Pairs to predict, for a run of the task ``edges``, which needs them, or ``links``: `source`, `destination`, `time` of a graph with
        times, and the features that the run had. They need not be edges of the graph.

    Returns
    -------
    Prediction
        ``logits``, shape (n, classes), and ``embeddings``, shape (n, hidden), as numpy arrays; of pairs, ``logits`` alone, shape
        (pairs, outputs). See `bulksample.methods.predict`.
    """
    from .methods.predict import predict as run

    return run(graph, checkpoint, model=model, at=at, pairs=pairs)


def _save(graph: Graph, path: str | os.PathLike[str], overwrite: bool) -> None:
    from .data.store import save

    save(graph, path, overwrite)


Graph.writer = _save


if not TYPE_CHECKING:  # type checkers read the imports above

    def __getattr__(name: str) -> Any:
        """Import what is asked for by name."""
        if name in ("backends", "samplers"):
            return importlib.import_module(f".{name}", __name__)
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
