"""Drop-ins for torch_geometric's `ClusterData` and `ClusterLoader`: batches of a few METIS parts, with the edges among them.

Chiang, Liu, Si, Li, Bengio, Hsieh, "Cluster-GCN: an efficient algorithm for training deep and large graph convolutional networks",
KDD 2019.
"""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.loader import ClusterData as TheirData
from torch_geometric.loader import ClusterLoader as TheirLoader
from torch_geometric.utils import narrow

from ...data.npy import read_sealed, save_sealed
from ...distributed.comm.base import Comm
from ...distributed.matrix.partition import Partition, metis
from ...errors import DataError, UsageError
from ...rng import Stream, check_seed
from ...sparse import CSR
from ..default_seed import seed_or_default
from ..edge_graph import EdgeGraph
from ..made_together import made_together
from .attributes import whole
from .bulk_drop_in import hashed
from .drop_in import DropInLoader
from .read_graph import check_edge_index, edges_of


class ClusterData(TheirData):
    """A drop-in for `torch_geometric.loader.ClusterData` with METIS from pymetis, without pyg-lib or torch-sparse.

    Parameters
    ----------
    data : torch_geometric.data.Data with an `edge_index`
        METIS sees its edges in both directions, without loops.
    num_parts : int
    recursive, log
        Ignored: pymetis chooses its method.
    save_dir, filename : str, optional
        Where the part of each vertex is kept for the next time: ``save_dir/part_{num_parts}/metis.npz``, with the seed and the
        fingerprint of the graph. Nothing is pickled.
    keep_inter_cluster_edges, sparse_format
        See torch_geometric.
    seed : int
        Of METIS.

    Raises
    ------
    UsageError
        If the graph is heterogeneous or lies in stores, or METIS finds fewer parts than `num_parts`.
    DataError
        If the file is damaged, or holds the parts of another graph or seed.
    BackendUnavailable
        If pymetis is missing.
    """

    def __init__(
        self, data: Data, num_parts: int, recursive: bool = False, save_dir: str | None = None, filename: str | None = None,
        log: bool = True, keep_inter_cluster_edges: bool = False, sparse_format: Literal["csr", "csc"] = "csr", *, seed: int = 0,
    ) -> None:  # fmt: skip
        check_edge_index("ClusterData", data)
        num_parts = whole("num_parts", num_parts, 1)
        check_seed(seed)
        if sparse_format not in ("csr", "csc"):
            raise UsageError(f"sparse_format must be 'csr' or 'csc'; got {sparse_format!r}")
        self.num_parts, self.recursive, self.keep_inter_cluster_edges = num_parts, recursive, keep_inter_cluster_edges
        self.sparse_format = sparse_format
        file = None if save_dir is None else Path(save_dir) / f"part_{num_parts}" / (filename or "metis.npz")
        adjacency = EdgeGraph(edges_of(data)).matrix
        parts = metis(adjacency, num_parts, seed) if file is None else _kept(file, adjacency, num_parts, seed)
        self.partition = self._partition(data.edge_index, torch.from_numpy(parts.assignment.astype(np.int64)))
        self.data = self._permute_data(data, self.partition)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch_geometric says that it guesses the number of vertices; here it is known
            if self.data.num_nodes != data.num_nodes:  # without x and edges it guesses wrong, and takes attributes of vertices for others
                self.data.num_nodes = data.num_nodes


class ClusterLoader(DropInLoader, TheirLoader):
    """A drop-in for `torch_geometric.loader.ClusterLoader`, with a seeded order, shares of ranks and a state.

    Parameters
    ----------
    cluster_data : ClusterData
        Of this package or of torch_geometric.
    bulk_size, memory_budget, comm
        See `DropInLoader`.
    seed : int, optional
        The order of every epoch is a function of it; by default torch's, see `default_seed`.
    options
        Of `torch.utils.data.DataLoader`: `batch_size` (parts of a batch), `shuffle`, `drop_last`, `num_workers` (threads), …

    Raises
    ------
    UsageError
        If the graph is not in parts, or an option has no meaning here.
    """

    @made_together
    def __init__(
        self, cluster_data: TheirData, *, bulk_size: int | Literal["auto"] = "auto", memory_budget: int | None = None,
        comm: Comm | None = None, seed: int | None = None, **options: Any,
    ) -> None:  # fmt: skip
        if not isinstance(cluster_data, TheirData):
            kind = type(cluster_data).__name__
            raise UsageError(f"ClusterLoader takes a graph in parts; got a {kind}: use ClusterLoader(ClusterData(data, num_parts=...))")
        self.set_up_epochs(Stream(seed_or_default(seed)), bulk_size, memory_budget, options, comm, seeded=seed is not None)
        super().__init__(cluster_data, **options)

    def _bulk(self, indices: list[Any], ids: list[int], epoch: int) -> list[torch.Tensor]:
        return [torch.as_tensor(index) for index in indices]

    def _describe(self) -> dict[str, Any]:
        return {"inputs": hashed(vars(self.cluster_data.partition))}

    def _finished(self, sampled: torch.Tensor) -> Any:
        parts = self.cluster_data.partition
        vertices = [slice(int(parts.partptr[part]), int(parts.partptr[part + 1])) for part in sampled]
        if any(parts.indptr[part.stop] > parts.indptr[part.start] for part in vertices):
            return self._collate(sampled)
        return self._without_edges(vertices)

    def _without_edges(self, vertices: list[slice]) -> Data:
        """Return a batch of parts that no edge leaves, on which torch_geometric's own code fails."""
        data = self.cluster_data.data
        out = copy.copy(data)
        for key, value in data.items():
            dim = data.__cat_dim__(key, value)
            if key == "num_nodes":
                out.num_nodes = sum(part.stop - part.start for part in vertices)
            elif data.is_node_attr(key):
                out[key] = torch.cat([narrow(value, dim, part.start, part.stop - part.start) for part in vertices], dim=dim)
            elif data.is_edge_attr(key):
                out[key] = narrow(value, dim, 0, 0)
        out.edge_index = torch.empty((2, 0), dtype=torch.int64)
        return out


def _kept(path: Path, adjacency: CSR, parts: int, seed: int) -> Partition:
    """Return METIS's parts from a file, which is written if there is none; `DataError` if it holds those of another graph or seed."""
    identity = f"{parts} parts of {adjacency.shape[0]} vertices, seed {seed}, graph {adjacency.fingerprint[:16]}"
    if path.exists():
        stored, assignment = read_sealed(path, ("told", "assignment"), "ClusterData").values()
        if (holds := stored.tobytes().decode()) != identity:
            raise DataError(f"{path} holds {holds}; asked for {identity}: use another save_dir")
        return Partition(parts, assignment)
    made = metis(adjacency, parts, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_sealed(path, {"told": np.frombuffer(identity.encode(), np.uint8), "assignment": made.assignment})
    return made
