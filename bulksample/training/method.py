"""The hooks of the one training loop. Their defaults are the exact baseline, `sync`: synchronous data parallelism.

    g = (sum over ranks of the gradients of the summed losses) / (seeds of this step on all ranks)

so P ranks with a minibatch each make the step that one rank makes with their union. A method overrides what its
paper changes and leaves the rest. A round is an epoch unless a method says otherwise; a run is one stage of rounds
unless a method trains a sequence of models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import torch
import torch.nn.functional as F

from ..backends.base import Backend
from ..config.train import TrainConfig
from ..distributed.comm.base import Comm
from ..evaluation.evaluate import evaluate
from ..evaluation.links import evaluate_links
from ..nn.decoders import LinkModel
from ..nn.model import Gnn, Model, build
from ..views.view import View, as_index
from .batches import BatchSource, MiniBatchSource, Step, make_loader
from .buckets import add_over_ranks
from .link_loss import held_out, link_loss
from .tensor_comm import TensorComm

if TYPE_CHECKING:
    from .compute import ComputeContext
    from .loop import Trainer
    from .setup import Source


class Method:
    """Synchronous data parallelism: every rank sees the whole graph, and gradients are averaged at every step.

    Attributes
    ----------
    name : str
    graphs : tuple of {"replicated", "partitioned"}
        How the graph may lie for this method; the first unless the user says otherwise.
    apart : bool
        Whether `view` makes a part that is this rank's alone. It is brought to where the rank computes then, and else what it is made of.
    """

    name: ClassVar[str] = "sync"
    graphs: ClassVar[tuple[str, ...]] = ("replicated", "partitioned")
    apart: ClassVar[bool] = False

    def __init__(self, config: TrainConfig) -> None:
        """Raises `UsageError` where the options have no meaning for this method."""
        self.config = config

    def open(self, source: Source, backend: Backend, fingerprint: str, weighted: bool, comm: Comm) -> View | None:
        """The graph as this rank sees it, where a method opens it in a way of its own; None leaves that to the loop."""
        if self.config.task == "links":
            self.links = held_out(source)
        return None

    def tensors(self, place: ComputeContext, comm: Comm) -> TensorComm:
        """How what a step makes travels between ranks; collective."""
        return place.tensors(comm)

    def view(self, view: View, comm: Comm) -> View:
        """The graph that this rank samples from and trains on."""
        return view

    def batches(self, trainer: Trainer) -> BatchSource:
        """The steps of a round; called once, before the model is made."""
        loader = make_loader(self.config, trainer.view, trainer.sampler, trainer.comm, trainer.division.sample > 0, trainer.place.budget())
        return MiniBatchSource(loader, trainer.view, trainer.ledger, self.config.fetch_together)

    def stages(self) -> int:
        """How many stages a run has."""
        return 1

    def rounds(self, stage: int) -> int:
        """How many rounds a stage has at most."""
        return self.config.epochs

    def model(self, trainer: Trainer, stage: int) -> Model:
        """What a stage trains; rank 0's weights become those of all ranks. Called once for each stage that a run enters."""
        config, seed = self.config, trainer.word(0, 0, initial=True)
        if config.task == "links":
            encoder = build(config, trainer.view.num_features, config.hidden, seed)
            return LinkModel(encoder, config.decoder, config.hidden)
        return build(config, trainer.view.num_features, trainer.view.num_classes, seed)

    def begin_stage(self, trainer: Trainer, stage: int) -> None:
        """Called before the first round of a stage, also where a resumed run enters in its middle."""

    def begin_round(self, trainer: Trainer) -> None:
        """Called before the first step of a round, also where a resumed run enters in its middle."""

    def steps(self, remaining: int, comm: Comm) -> int:
        """How many steps this round makes, agreed by all ranks before the first collective of the round.

        `remaining` is what this rank has left; a rank that runs out goes on with empty minibatches.
        """
        return max(comm.gather_control(remaining))

    def loss(self, trainer: Trainer, step: Step) -> tuple[torch.Tensor | None, float]:
        """The summed loss of this rank in a step, and over how many vertices; None where there is nothing to differentiate."""
        if self.config.task == "links":
            return link_loss(trainer, step)
        asked = self.asked(trainer, step)
        if asked is None:
            return None, 0
        logits, truth, _ = asked
        return F.cross_entropy(logits, truth, reduction="sum"), len(truth)

    def asked(self, trainer: Trainer, step: Step) -> tuple[torch.Tensor, torch.Tensor, np.ndarray] | None:
        """Of the seeds of a step that have a class: logits, classes, and which of the minibatch's seeds they are; None if none has."""
        minibatch = step.minibatch
        if minibatch is None:
            return None
        truth = trainer.view.truth(minibatch.seeds)
        rows = np.flatnonzero(truth >= 0)
        if not len(rows):
            return None
        assert step.x is not None
        with trainer.place.arithmetic():
            logits = trainer.model(minibatch.blocks, step.x, trainer.view.degrees(minibatch.vertices)).float()
        asked = as_index(minibatch.seed_rows)[torch.from_numpy(rows)]
        return logits[asked], torch.from_numpy(truth[rows]).to(logits.device), rows

    def combine_gradients(self, trainer: Trainer, sums: torch.Tensor) -> torch.Tensor:
        """Turn this rank's gradients into those of the step.

        Parameters
        ----------
        sums : float32, shape (3,)
            Of this rank: seeds in the loss, summed loss, and 1 if it was asked to stop.

        Returns
        -------
        float32, shape (3,)
            The same, summed over ranks. Every parameter of the model has its gradient afterwards.

        Notes
        -----
        ``2 (p - 1) (|theta| + 3)`` words over all ranks (kind "gradients"), those of theta as the gradient codec holds them.
        Running statistics of a batch norm are averaged besides (kind "model").
        """
        parameters = list(trainer.model.parameters())
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if self.config.gradient_codec == "fp32":
            add_over_ranks([*gradients, sums], trainer.comm, "gradients", over=trainer.tensors)
        else:
            add_over_ranks(gradients, trainer.comm, "gradients", self.config.gradient_codec)
            add_over_ranks([sums], trainer.comm, "gradients")
        statistics = [buffer for buffer in trainer.model.buffers() if buffer.is_floating_point()]
        if statistics and trainer.comm.size > 1:
            add_over_ranks(statistics, trainer.comm, "model", over=trainer.tensors)
            for buffer in statistics:
                buffer.div_(trainer.comm.size)
        if sums[0] > 0:
            for gradient in gradients:
                gradient.div_(sums[0])
        return sums

    def end_step(self, trainer: Trainer, sums: torch.Tensor) -> torch.Tensor:
        """Called after the optimiser's step; what the loop is told of `combine_gradients`."""
        return sums

    def end_round(self, trainer: Trainer) -> None:
        """Called after the last step of a round, before it is evaluated."""

    def evaluate(self, trainer: Trainer) -> dict[str, float]:
        """Scores of every split, on every rank; see `evaluation.evaluate` and `nn.decoders`."""
        return self.scores(trainer.model, trainer.view, trainer.comm)

    def scores(self, model: Model, view: View, comm: Comm) -> dict[str, float]:
        """Scores of a model on a view that the ranks of a communicator share; collective among them."""
        if self.config.task == "links":
            _, _, k = self.config.metric.partition("@")
            return evaluate_links(cast(LinkModel, model), view.share, self.links, comm, sorted({10, int(k or 10)}))
        return evaluate(cast(Gnn, model), view.name, view.share, comm, self.config.metric)

    def end_stage(self, trainer: Trainer, stage: int) -> None:
        """Called after the last round of a stage, the best weights by validation being those of the model again."""

    def before_save(self, trainer: Trainer) -> None:
        """Called on every rank before rank 0 writes a checkpoint."""

    def state_dict(self) -> dict[str, torch.Tensor]:
        """What a resumed run needs beyond the model, the optimiser and the place; alike on every rank."""
        return {}

    def load_state_dict(self, tensors: dict[str, torch.Tensor]) -> None:
        """Put that back, before `model` and `begin_stage` are called for the stage under way."""

    def describe(self) -> dict[str, Any]:
        """For the report."""
        return {}
