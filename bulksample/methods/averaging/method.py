"""Model averaging: trainers train on parts of the graph on their own, and a server averages their weights now and then.

    offline       M parts; trainer m sees A[S_m, S_m], the degrees in it, and no other vertex
    interval      trainer m makes steps of its own Adam on its own seeds; nothing travels
    average       w = sum over m of a_m w_m / sum of a_m, on the server     a_m: 1, the steps of m, or the vertices of S_m
    then          the server may correct w, sends it to all, and evaluates it exactly on the whole graph

Each trainer and average costs 8 (|theta| + 4) bytes (kind "model"): weights to the server and back, and with them the number of
seeds, the loss, the stop requests and a_m. Adam's moments stay with their trainer. Rank 0 is the server. A rank alone trains
on the whole graph; its averages are the identity, and its run is that of `sync` to the bit. A `Participant` decides which
processes take part and how vectors travel between them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from ...distributed.comm.base import Comm
from ...distributed.comm.threads import SerialComm
from ...distributed.matrix import partition as partitions
from ...distributed.matrix.partition import Partition
from ...distributed.matrix.partition_quality import tradeoff
from ...distributed.matrix.placement import Placement
from ...errors import BackendUnavailable, DataError, UsageError
from ...sparse import CSR
from ...training.batches import BatchSource
from ...training.compute import ComputeContext
from ...training.context import TrainingContext
from ...training.method import Method
from ...training.source import ViewRequest
from ...training.tensor_comm import HostTensorComm, TensorComm
from ...views.local import local_graph
from ...views.view import View
from ..config import TrainConfig
from .divided_graph import DividedGraph, divided_graph
from .lockstep import Lockstep
from .participant import SCALARS, Participant, Partitioning, load_vector, vector_of
from .remote_trainer import RemoteTrainer
from .trainer_server import TrainerServer


class Averaging(Method):
    """Train on separate parts of the graph, and average the weights of the models at intervals.

    `partition_kind` is the partitioner of the vertices, unless the configuration names a file; the server alone has the `whole_view`.
    """

    graphs: ClassVar[tuple[str, ...]] = ("partitioned",)
    feature_placements: ClassVar[tuple[str, ...]] = ("partitioned",)  # a trainer reads those of its part
    equal_steps: ClassVar[bool] = True
    shared_sums: ClassVar[bool] = False
    maps_relations: ClassVar[bool] = True
    elastic: ClassVar[Literal["minibatches", "whole", "no"]] = "no"
    partition_kind: ClassVar[str]
    graph: DividedGraph
    whole_view: View
    _part_view: Callable[[np.ndarray], View]

    config: TrainConfig

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        fixed = {"replication": 1, "gradient_codec": "fp32", "feature_codec": "fp32", "feature_storage": "given", "cache_bytes": 0}
        for option, fits in fixed.items():
            if (value := getattr(config, option)) != fits:
                raise UsageError(f"trainers of {self.name!r} send nothing but weights; got {option} {value}: use {fits}")
        if config.device_comm in ("nccl", "mpi"):
            raise UsageError(f"weights are averaged on the host; got device_comm {config.device_comm}: use auto or host")
        if config.partition in partitions.PARTITIONERS[1:]:
            raise UsageError(f"the method {self.name!r} has a partitioner of its own; got partition {config.partition}: use a file")

    # ---- the graph

    def needs_store(self, placement: Placement) -> bool:
        """Return False: the server and each trainer take their part of a graph in memory."""
        return False

    def open(self, request: ViewRequest) -> View:
        """Open the whole graph on the server, which partitions it; on a trainer open its part."""
        config = self.config
        self.graph = divided_graph(config, self._with_links(request))
        if config.join:
            self.participant: Participant = RemoteTrainer(config, request.fingerprint)
        elif config.tolerate_failures:
            self.participant = TrainerServer(config, request.comm, request.fingerprint, request.folder)
        else:
            self.participant = Lockstep(config, request.comm)
        if config.lost_parts and self.participant.part is not None and self.participant.serves:
            raise UsageError("lost_parts needs trainers beside the server; got 1 rank: use 3 or more")
        members, split = self.participant.receive_part(self._partition_graph() if self.participant.serves else None)
        self._part_view = partial(self.graph.part_view, split=split)
        if self.participant.serves:
            self.whole_view = self.graph.whole_view()
        return self.whole_view if members is None else self._part_view(members)

    def tensor_comm(self, compute: ComputeContext, comm: Comm) -> TensorComm:
        """Return a communicator over host memory, because averages are made there."""
        return HostTensorComm(comm, "weights are averaged there")

    def _partition_graph(self) -> Partitioning:
        """Return the partition of the whole graph; if that fails, the reason, which all participants then raise."""
        graph, parts = self.graph, self.participant.trainers + self.config.lost_parts
        try:
            graph.load()
            assignment = self._make_partition(graph.adjacency, parts).assignment
            quality = tradeoff(graph.adjacency, graph.labels, assignment, parts)
        except (DataError, UsageError, BackendUnavailable) as error:
            return Partitioning(fault=str(error), damaged=isinstance(error, DataError))
        self.tradeoff = quality
        if not self.config.quiet:
            print(
                f"bulksample: {parts} parts keep {quality['edges_kept']:.1%} of the edges, isolate {quality['isolated']:.1%} of the "
                f"vertices, and are {quality['label_distance']:.3f} from the labels of the whole (total variation)", file=sys.stderr,
            )  # fmt: skip
        split_part = partial(self._split_part, graph.adjacency)
        return Partitioning(assignment, graph.split, split_part=split_part, count_examples=graph.count_examples)

    def _make_partition(self, adjacency: CSR, parts: int) -> Partition:
        if self.config.partition == "block":
            return partitions.make(self.partition_kind, adjacency, parts, self.config.seed, self.config.clusters)
        made = Partition.load(self.config.partition)
        if (made.n, made.parts) != (adjacency.shape[0], parts):
            raise UsageError(f"the partition file has {made.n} vertices in {made.parts} parts; use one of {adjacency.shape[0]} in {parts}")
        return made

    def _split_part(self, adjacency: CSR, part: int, vertices: np.ndarray, pieces: int) -> np.ndarray:
        """Re-partition one part with the method's partitioner, by random words of its own: the piece of each vertex."""
        clusters = self.config.clusters and max(pieces, self.config.clusters // self.participant.trainers)
        _, induced = local_graph(vertices, adjacency.take(vertices), 0)
        return partitions.make(self.partition_kind, induced, pieces, self.config.seed, clusters, draw=part + 1).assignment

    def batches(self, context: TrainingContext) -> BatchSource:
        return self.participant.batches(context)

    # ---- steps and averages

    def combine_gradients(self, context: TrainingContext, sums: torch.Tensor) -> torch.Tensor:
        """Divide the gradients by the number of this trainer's seeds; nothing is sent. Sums go to the host: they travel with weights."""
        sums = sums.cpu()
        if sums[0] > 0:
            for parameter in context.model.parameters():
                if parameter.grad is not None:
                    parameter.grad.div_(sums[0])
        return sums

    def end_step(self, context: TrainingContext, sums: torch.Tensor) -> torch.Tensor:
        return self.participant.end_step(context, self, sums)

    def correct(self, context: TrainingContext) -> None:
        """Improve an average on the server before it is sent."""

    def average(self, context: TrainingContext, vectors: list[np.ndarray]) -> np.ndarray:
        """Return the corrected average of the trainers' vectors, at least one; the server's model holds it afterwards.

        Vectors are float32, shape (|theta| + 4,), in the form that `participant` describes.
        """
        stacked = np.stack(vectors).astype(np.float64)
        weights, totals = stacked[:, -1], stacked[:, -SCALARS:].sum(0)
        weights = weights if weights.any() else np.ones(len(weights))
        mean = weights @ stacked[:, :-SCALARS] / weights.sum()  # float64: the mean of equal vectors is that vector, to the bit
        load_vector(context.model, mean.astype(np.float32))
        self.correct(context)
        return np.concatenate([vector_of(context.model), totals.astype(np.float32)])

    # ---- after a round

    def evaluate(self, context: TrainingContext) -> dict[str, float]:
        """Return the scores of the newest average, which the server evaluates alone."""
        scores = self.scores(context.model, self.whole_view, SerialComm()) if self.participant.serves else {}
        return self.participant.share_scores(scores)

    def before_save(self, context: TrainingContext) -> None:
        self.participant.before_save(context)

    def begin_stage(self, context: TrainingContext, stage: int) -> None:
        """Wait for all participants, unless no round is left. The seconds of this wait count in no round."""
        if context.progress.rounds < self.stages()[stage] and not context.progress.finished:
            self.participant.wait_for_all(context)

    def begin_round(self, context: TrainingContext) -> None:
        """Switch to the new vertices of this trainer's part, if the server has changed them."""
        self.participant.begin_round(context)
        members = self.participant.new_vertices()
        if members is not None:
            context.replace_view(self._part_view(members))
            self.participant.use_view(context)

    def end_stage(self, context: TrainingContext, stage: int) -> None:
        self.participant.close()

    def state_dict(self) -> dict[str, torch.Tensor]:
        return self.participant.state_dict()

    def load_state_dict(self, tensors: dict[str, torch.Tensor]) -> None:
        self.participant.load_state_dict(tensors)

    def describe(self) -> dict[str, Any]:
        return {**self.participant.describe(), **(self.tradeoff if self.participant.serves else {})}
