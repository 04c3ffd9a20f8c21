"""Place the topology and the features of a graph on ranks: two independent choices, and the process grid of each.

The published main placement is the topology on every rank and the features in block rows. No placement changes a mini-batch.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from ...config import FeaturePlacement
from ...data.parts_manifest import is_parts
from ...errors import UsageError, instead_of
from ..comm.base import Comm
from ..comm.machines import uneven
from . import partition as partitions
from .grid import ORDERS, Order, ProcessGrid, choose_order, position_in_grid

if TYPE_CHECKING:
    from ...config.train import SampleConfig, TrainOptions

TOPOLOGIES = ("replicated", "partitioned")
FEATURES: tuple[str, ...] = get_args(FeaturePlacement)
EXCHANGES = ("owner", "rows", "rows-oblivious")


@dataclass(frozen=True)
class Placement:
    """The distribution of topology and features over ranks. Raises `UsageError` for names and arguments that do not fit each other."""

    topology: str = "replicated"  # or "partitioned": rank (i, j) of the process grid reads only block row i of p / c
    replication: int = 1  # c, the ranks that hold each block row of the topology; 1 if nothing is partitioned
    exchange: str = "owner"  # the policy of a partitioned topology, one of EXCHANGES
    # One of PARTITIONERS, the file of a `Partition` of p / c parts, or a folder of parts. A graph that is opened from a folder of parts
    # keeps these; "block" then stands for them.
    partition: str = "block"
    # One of FEATURES, by default where the topology lies. "host": one copy in the memory of each machine, shared by its ranks. "machine":
    # divided among the devices of a machine, a copy on each machine; without devices the same as "host".
    features: str | None = None
    feature_replication: int | None = None  # c of the features, if they are partitioned; by default that of the topology
    grid_order: str = "auto"  # see `grid.choose_order`
    # G of loaders that draw mini-batches from groups of near seeds. A partitioner that is named then makes G parts, of which each block
    # row holds equally many, so that the part order does not depend on the number of ranks.
    seed_locality: int | None = None

    def __post_init__(self) -> None:
        if self.features is None:
            object.__setattr__(self, "features", self.topology)
        known = {"topology": TOPOLOGIES, "features": FEATURES, "exchange": EXCHANGES, "grid_order": ORDERS}
        for argument, names in known.items():
            if (name := getattr(self, argument)) not in names:
                raise UsageError(f"{argument}: got {name!r}; {instead_of(str(name), names)}")
        if not self.partitioned and self.exchange != "owner":
            raise UsageError(f"exchange is for a topology in block rows; got {self.exchange} with the topology replicated: use owner")
        if self.features != "partitioned" and self.feature_replication is not None:
            raise UsageError(
                f"feature_replication is for features in block rows; got c = {self.feature_replication} with features {self.features}: "
                "use features partitioned"
            )
        if not self.partitioned and self.features != "partitioned" and self.replication != 1:
            raise UsageError(
                f"replication is for block rows; got c = {self.replication} with the topology replicated and features {self.features}: "
                "use graph partitioned, or features partitioned"
            )
        if self.partition not in partitions.PARTITIONERS and not Path(self.partition).is_file() and not is_parts(self.partition):
            raise UsageError(
                f"partition must be one of {', '.join(partitions.PARTITIONERS)} or a file or a folder of parts; got {self.partition!r}"
            )
        for option, fits in (("partition", "block"), ("grid_order", "auto")) if not self.divided else ():
            if (value := getattr(self, option)) != fits:
                raise UsageError(
                    f"{option} is for block rows; got {value} with the topology replicated and features {self.features}: use graph "
                    f"partitioned, or features partitioned, or {option} {fits}"
                )

    @staticmethod
    def of(options: TrainOptions | SampleConfig, prefers: str = "replicated") -> Placement:
        """Return the placement that the options of a run name; a topology that they do not name is where the method prefers it.

        Their `graph` stands for topology and features.
        """
        topology = options.topology or options.graph or prefers
        named = {field.name: getattr(options, field.name) for field in fields(Placement)}
        return Placement(**{**named, "topology": topology, "features": options.features or topology})

    def options(self) -> dict[str, Any]:
        """Return the options of a run with this placement."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) is not None}

    @property
    def partitioned(self) -> bool:
        """True if the topology is in block rows."""
        return self.topology == "partitioned"

    @property
    def shards_features(self) -> bool:
        """True if features are in block rows."""
        return self.features == "partitioned"

    @property
    def divided(self) -> bool:
        """True if anything is in block rows."""
        return self.partitioned or self.shards_features

    @property
    def oblivious(self) -> bool:
        return self.exchange == "rows-oblivious"

    def on_devices(self, comm: Comm) -> Placement:
        """Return the placement for ranks with a device each: features of ``machine`` are in block rows over the ranks of a machine.

        Raises `UsageError` on every rank if machines do not have equally many ranks.
        """
        if self.features != "machine":
            return self
        if different := uneven(comm):
            raise UsageError(f"features machine needs machines of equally many ranks; they have {different}: use features host")
        return replace(self, features="partitioned", feature_replication=int(comm.machine_of.max()) + 1, grid_order="columns")

    def topology_shape(self, comm: Comm) -> tuple[int, Order]:
        """Return c and the order of the process grid of the topology."""
        return self.replication, choose_order(comm, self.grid_order, self.exchange != "owner")

    def feature_shape(self, comm: Comm) -> tuple[int, Order]:
        """Return c and the order of the process grid of the features."""
        return self.feature_replication or self.replication, choose_order(comm, self.grid_order)

    def parts(self, grid: ProcessGrid) -> int:
        """Return how many parts a partitioner makes: one for each block row or, of those that are named, `seed_locality`."""
        count = self.seed_locality if self.partition in partitions.PARTITIONERS and self.seed_locality else grid.rows
        if count % grid.rows:
            raise UsageError(
                f"seed_locality {count} makes {count} parts by {self.partition}, which p / c = {grid.rows} block rows cannot share evenly; "
                f"use a multiple of {grid.rows}, partition block, or a folder of `bulksample partition`"
            )
        return count

    def place(self, comm: Comm) -> int:
        """Return the number of this rank in the order of the block rows: 0 .. p - 1; its rank if nothing is in block rows.

        Of p ranks, number r holds the rows in places r n / p to (r + 1) n / p of part order, about, among c others. Features decide if they
        and the topology lie apart. Needs no communication.
        """
        if not self.divided:
            return comm.rank
        c, order = self.feature_shape(comm) if self.shards_features else self.topology_shape(comm)
        row, column = position_in_grid(comm, c, order)
        return row * c + column

    def topology_grid(self, comm: Comm) -> ProcessGrid:
        """Make the process grid of the topology; collective."""
        return ProcessGrid(comm, *self.topology_shape(comm))

    def feature_grid(self, comm: Comm) -> ProcessGrid:
        """Make the process grid of the features; collective."""
        return ProcessGrid(comm, *self.feature_shape(comm))

    def describe(self, comm: Comm) -> dict[str, Any]:
        """Return the entries of a report; "graph" names the placement of both, or that of the topology and that of the features."""
        alike, shape = self.topology == self.features, self.feature_shape(comm)
        return {
            "graph": self.topology if alike else f"{self.topology}+{self.features}",
            "topology": self.topology,
            "features": self.features,
            "replication": self.replication,
            "feature_replication": shape[0] if self.shards_features else None,
            "exchange": self.exchange,
            "topology_order": self.topology_shape(comm)[1] if self.partitioned else None,
            "feature_order": shape[1] if self.shards_features else None,
            "ranks_of_machines": np.bincount(comm.machine_of).tolist(),
        }

    def same_rows(self, comm: Comm) -> bool:
        """True if a rank holds the same block row of the topology and of the features; needs no communication."""
        (c, one), (d, other) = self.topology_shape(comm), self.feature_shape(comm)
        return self.partitioned and self.shards_features and c == d and (one == other or c in (1, comm.size))
