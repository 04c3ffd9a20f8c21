"""Model averaging, in one place: trainers train on parts of the graph apart, and a server averages their weights now and then.

    offline       M parts; trainer m sees A[S_m, S_m], the degrees in it, and no other vertex
    interval      trainer m makes its own steps of its own Adam on its own seeds; nothing travels
    average       w = sum over m of a_m w_m / sum of a_m, on the server     a_m: 1, the steps made, or the vertices of S_m
    then          the server may correct w, sends it to all, and evaluates it exactly on the whole graph

8 (|theta| + 4) bytes for every trainer and average (kind "model"): weights there and back, and with them what was counted, the
losses, the wish to stop and a_m. Adam's moments stay where they are. Rank 0 is the server, unless it is alone: then it trains on the
whole graph, an average is the identity, and the run is that of `sync` to the bit. What the parties are and how numbers
travel between them is the business of a plane (`methods.planes`).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from ...backends.base import Backend
from ...config.train import TrainConfig
from ...data import store
from ...distributed.comm.base import Comm
from ...distributed.comm.threads import SerialComm
from ...distributed.costs.partition_quality import tradeoff
from ...distributed.matrix import partition as partitions
from ...distributed.matrix.partition import Partition
from ...errors import BackendUnavailable, DataError, UsageError
from ...graph import Graph
from ...sparse import CSR
from ...training.batches import BatchSource
from ...training.link_loss import without_labels
from ...training.method import Method
from ...training.tensor_comm import HostTensorComm, TensorComm
from ...views.induced import local_graph, part_of
from ...views.view import View
from ...views.whole import WholeView
from .joined import Joined
from .lockstep import Lockstep
from .participant import SCALARS, Dealt, Participant, load_vector, vector_of
from .serving import Serving

if TYPE_CHECKING:
    from ...training.compute import ComputeContext
    from ...training.loop import Trainer
    from ...training.setup import Source


class Averaging(Method):
    """Training apart on parts, and averages of the weights.

    Attributes
    ----------
    deal : one of dist.partition.PARTITIONERS
        How vertices are dealt to parts, unless a file says so.
    judge : WholeView
        The whole graph; on the server alone.
    """

    graphs: ClassVar[tuple[str, ...]] = ("partitioned",)
    deal: ClassVar[str]

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        fixed = {"replication": 1, "gradient_codec": "fp32", "feature_codec": "fp32", "feature_storage": "given", "cache_bytes": 0}
        for name, fits in fixed.items():
            if (given := getattr(config, name)) != fits:
                raise UsageError(f"trainers of {self.name!r} send nothing but weights; got {name} {given}: {fits} would fit")
        if config.device_comm in ("nccl", "mpi"):
            raise UsageError(f"weights are averaged over the host; got device_comm {config.device_comm}: auto or host would fit")
        if config.partition in partitions.PARTITIONERS[1:]:
            raise UsageError(f"the method {self.name!r} deals vertices itself; got partition {config.partition}: a file would fit")

    # ---- the graph

    def open(self, source: Source, backend: Backend, fingerprint: str, weighted: bool, comm: Comm) -> View:
        """The whole graph on the server, which deals its vertices; on a trainer its part."""
        config, links = self.config, self.config.task == "links"
        super().open(source, backend, fingerprint, weighted, comm)
        self.plane = self._plane(comm, fingerprint, None if isinstance(source, Graph) else str(source))
        if config.lost_parts and self.plane.part is not None and self.plane.serves:
            raise UsageError("parts can be lost where trainers are apart from the server; got 1 rank: 3 or more would fit")
        whole, dealt = self._dealt(source) if self.plane.serves else (None, None)
        members, split = self.plane.share(dealt)

        def seen(graph: Graph) -> WholeView:
            graph = without_labels(graph) if links else graph
            return WholeView(graph, SerialComm(), backend, fingerprint, split, config.feature_norm, weighted)

        self._view_of = lambda vertices: seen(part_of(source, vertices, config.label))
        if whole is not None:
            self.judge = seen(whole)
        return self.judge if members is None else self._view_of(members)

    def tensors(self, place: ComputeContext, comm: Comm) -> TensorComm:
        """Nothing but weights travels, and those from host to host."""
        return HostTensorComm(comm, "weights are averaged there")

    def _plane(self, comm: Comm, fingerprint: str, source: str | None) -> Participant:
        """Which party of averaging this process is."""
        if self.config.join:
            return Joined(self.config, fingerprint)
        if self.config.tolerate_failures:
            return Serving(self.config, comm, fingerprint, source)
        return Lockstep(self.config, comm)

    def _dealt(self, source: Source) -> tuple[Graph | None, Dealt]:
        """The whole graph and its parts; where that fails, the fault, to be told to all."""
        config, parts = self.config, self.plane.trainers + self.config.lost_parts
        try:
            graph = source if isinstance(source, Graph) else store.load(source)
            graph = graph.with_label(config.label) if config.label else graph
            labelled = graph.labels is not None and graph.num_classes > 1
            if config.task == "nodes" and not labelled:
                raise UsageError(f"graph {graph.name!r} has no labels to train on; it needs at least two classes")
            assignment = self._parts(graph.adjacency, parts).assignment
            told = tradeoff(graph.adjacency, np.full(graph.n, -1) if graph.labels is None else graph.labels, assignment, parts)
            split = config.seeds or ("train" if graph.masks.get("train", np.zeros(1, bool)).any() else "all")
            split = "all" if config.task == "links" else split
            graph.seeds(split)
        except (DataError, UsageError, BackendUnavailable) as error:
            return None, Dealt(fault=str(error))
        self.told = told
        if not config.quiet:
            print(
                f"bulksample: {parts} parts keep {told['edges_kept']:.1%} of the edges, isolate {told['isolated']:.1%} of the vertices, "
                f"and are {told['label_distance']:.3f} from the labels of the whole (total variation)", file=sys.stderr,
            )  # fmt: skip
        return graph, Dealt(assignment, split, cut=lambda vertices, pieces: self._cut(graph.adjacency, vertices, pieces))

    def _parts(self, adjacency: CSR, parts: int) -> Partition:
        if self.config.partition == "block":
            return partitions.make(self.deal, adjacency, parts, self.config.seed, self.config.clusters)
        made = Partition.load(self.config.partition)
        if (made.n, made.parts) != (adjacency.shape[0], parts):
            raise UsageError(f"the partition deals {made.n} vertices to {made.parts} parts; {parts} of {adjacency.shape[0]} would fit")
        return made

    def _cut(self, adjacency: CSR, vertices: np.ndarray, pieces: int) -> np.ndarray:
        """Vertices of a part dealt to several, by the law by which all were: the piece of each."""
        clusters = self.config.clusters and max(pieces, self.config.clusters // self.plane.trainers)
        _, induced = local_graph(vertices, adjacency.take(vertices), 0)
        return partitions.make(self.deal, induced, pieces, self.config.seed, clusters).assignment

    def batches(self, trainer: Trainer) -> BatchSource:
        return self.plane.batches(trainer)

    # ---- steps and averages

    def steps(self, remaining: int, comm: Comm) -> int:
        """Alike on every rank already."""
        return remaining

    def combine_gradients(self, trainer: Trainer, sums: torch.Tensor) -> torch.Tensor:
        """The mean over the own seeds; nothing travels."""
        if sums[0] > 0:
            for parameter in trainer.model.parameters():
                if parameter.grad is not None:
                    parameter.grad.div_(sums[0])
        return sums

    def end_step(self, trainer: Trainer, sums: torch.Tensor) -> torch.Tensor:
        return self.plane.end_step(trainer, self, sums)

    def correct(self, trainer: Trainer) -> None:
        """What the server does to an average before it sends it."""

    def averaged(self, trainer: Trainer, answers: list[np.ndarray]) -> np.ndarray:
        """The average of what trainers sent, corrected, as it is sent back; the model of the server has it.

        Parameters
        ----------
        answers : list of float32, shape (|theta| + 4,)
            As `vector_of` makes them; at least one.
        """
        stacked = np.stack(answers).astype(np.float64)
        share, totals = stacked[:, -1], stacked[:, -SCALARS:].sum(0)
        share = share if share.any() else np.ones(len(share))
        mean = share @ stacked[:, :-SCALARS] / share.sum()  # in float64: of equal weights the weights themselves, to the bit
        load_vector(trainer.model, mean.astype(np.float32))
        self.correct(trainer)
        return np.concatenate([vector_of(trainer.model), totals.astype(np.float32)])

    def share(self, trainer: Trainer, steps: int) -> float:
        """a_m, for so many steps since the last average."""
        return {"responders": 1.0, "steps": float(steps), "vertices": float(trainer.view.adjacency.n)}[self.config.average_by]

    # ---- after a round

    def evaluate(self, trainer: Trainer) -> dict[str, float]:
        """By the server alone, of the newest average."""
        scores = {}
        if self.plane.serves:
            scores = self.scores(trainer.model, self.judge, SerialComm())
        return self.plane.told_by_server(scores)

    def before_save(self, trainer: Trainer) -> None:
        self.plane.before_save(trainer)

    def begin_stage(self, trainer: Trainer, stage: int) -> None:
        """Where rounds are left, wait for the parties; no round counts the seconds of that."""
        if trainer.progress.rounds < self.rounds(stage) and not trainer.progress.finished:
            self.plane.meet(trainer)

    def begin_round(self, trainer: Trainer) -> None:
        self.plane.begin_round(trainer)
        members = self.plane.dealt_anew()
        if members is not None:
            trainer.view = self._view_of(members)
            trainer.bring(trainer.view)
            self.plane.settle(trainer)

    def end_stage(self, trainer: Trainer, stage: int) -> None:
        self.plane.close()

    def state_dict(self) -> dict[str, torch.Tensor]:
        return self.plane.state_dict()

    def load_state_dict(self, tensors: dict[str, torch.Tensor]) -> None:
        self.plane.load_state_dict(tensors)

    def describe(self) -> dict[str, Any]:
        return {**self.plane.describe(), **(self.told if self.plane.serves else {})}
