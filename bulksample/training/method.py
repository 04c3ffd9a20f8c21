"""The hooks of the training loop. Their defaults are the exact baseline, `sync`: synchronous data parallelism.

    g = (sum over ranks of the gradients of the summed losses) / (seeds of this step on all ranks)

so p ranks with a mini-batch each make the step that one rank makes with the union of these mini-batches. A method
overrides what its paper changes and leaves the rest. The loop calls the hooks in this order::

    open, tensor_comm, view, batches                 once
    for each stage:    model, begin_stage            a network that is trained; most methods have one stage
        for each round:    begin_round               an epoch
            for each step:    loss, combine_gradients, (the optimizer's step), end_step
            evaluate
        end_stage
    before_save, state_dict                          for each checkpoint; load_state_dict when a run is resumed
    describe                                         for the report
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple, cast

import numpy as np
import torch
from torch import nn

from ..backends.dropout import kept_parts
from ..config import MODELS
from ..config.metrics import METRICS
from ..config.train import TrainOptions
from ..distributed.comm.agree import agree, together
from ..distributed.comm.base import Comm
from ..distributed.matrix.placement import FEATURES, Placement
from ..errors import UsageError
from ..evaluation.by_batches import BatchScoring, evaluate_by_batches
from ..evaluation.edges import evaluate_edges
from ..evaluation.evaluate import evaluate
from ..evaluation.links import evaluate_links
from ..graph.labels import has_label
from ..nn.decoders import LinkModel, PairModel
from ..nn.gather import OwnAndMean
from ..nn.losses import summed_loss, summed_shares
from ..nn.model import Gnn, Model
from ..nn.own_model import OwnModel, make_module
from ..nn.relational import RelationalGnn
from ..samplers.full import Full
from ..views.inference_share import InferenceShare
from ..views.view import View, as_index
from .batches import BatchSource, StepBatch
from .compute import ComputeContext
from .context import TrainingContext
from .edge_task import EdgeTask
from .link_batches import check_ranking, edge_loss, held_out, link_loss
from .loaders import agree_on_input_layer, shared_loader, steps_of
from .setup import make_model, open_view, sampled_scoring
from .source import ViewRequest
from .tensor_comm import TensorComm, add_over_ranks
from .weights import combine_buffers, gradients_of


class Method:
    """Synchronous data parallelism: every rank sees the whole graph, and all ranks average their gradients at every step.

    Attributes
    ----------
    name : str
    graphs : tuple of {"replicated", "partitioned"}
        The placements of the topology that the method can train on; the first is the default.
    feature_placements : tuple of str
        The placements of the features that the method can train on.
    equal_steps : bool
        True if every rank has the same number of steps in a round. Otherwise the ranks agree on the largest number.
    shared_sums : bool
        True if `combine_gradients` returns the sums of all ranks, so that all of them see at once that a step has failed.
    maps_relations : bool
        True if every rank has the relations of several types whole, also where its method divides them.
    elastic : {"minibatches", "whole", "no"}
        What another number of ranks continues: the mini-batches of the ranks of the first start, which they share to the bit (see
        `training.step`), steps over the whole graph, which agree within rounding, or nothing.
    models : {"any", "layers", "own"}
        What the method can train: any module, models made of our layers (between which it exchanges rows), or only its own.
    """

    name: ClassVar[str] = "sync"
    graphs: ClassVar[tuple[str, ...]] = ("replicated", "partitioned")
    feature_placements: ClassVar[tuple[str, ...]] = FEATURES
    equal_steps: ClassVar[bool] = False
    shared_sums: ClassVar[bool] = True
    maps_relations: ClassVar[bool] = False
    elastic: ClassVar[Literal["minibatches", "whole", "no"]] = "minibatches"
    models: ClassVar[Literal["any", "layers", "own"]] = "any"

    def __init__(self, config: TrainOptions) -> None:
        """Check the options; raises `UsageError` if they have no meaning for this method."""
        self.config = config
        for option in ("dropout", "input_dropout"):
            kept_parts(getattr(config, option), option)
        if config.balance_classes and self.target != "class":
            raise UsageError(f"balance_classes weighs seeds by their class; got target {self.target}: leave it out")
        self.module: nn.Module | None = None  # the user's, if there is one
        self.edges: EdgeTask | None = None  # the labelled edges, if they are predicted
        if config.is_own_model:
            self._check_own_model("any")

    def train_module(self, module: nn.Module) -> None:
        """Train a module of the user's from now on; raises `UsageError` if the method trains other models alone."""
        self._check_own_model("layers" if isinstance(module, Gnn) else "any")
        self.module = module

    def _check_own_model(self, needs: str) -> None:
        fits = {"layers": ("any", "layers"), "any": ("any",)}[needs]
        if self.models not in fits:
            why = "makes its own models" if self.models == "own" else "exchanges rows between the layers of the model"
            raise UsageError(f"method {self.name!r} {why}; got {self.config.model}: use model {', '.join(MODELS)}, or method sync")
        if self.config.task != "nodes":
            raise UsageError(
                f"task {self.config.task} decodes embeddings of our layers; got {self.config.model}: use model {', '.join(MODELS)}"
            )

    @property
    def target(self) -> str:
        """The target of training: ``class``, ``multilabel`` or ``regression``."""
        return self.config.target or "class"

    @property
    def metric(self) -> str:
        """The score that picks the best weights."""
        return self.config.metric or METRICS["links" if self.config.task == "links" else self.target][0]

    # ---- once, before the first stage

    def needs_store(self, placement: Placement) -> bool:
        """Return whether the ranks of a placement read the graph from a store: block rows, and features that their machine holds."""
        return placement.divided or placement.features != "replicated"

    def open(self, request: ViewRequest) -> View:
        """Open the graph as this rank sees it; collective."""
        self.edges = request.edges
        return open_view(self.config, self._with_links(request))

    def _with_links(self, request: ViewRequest) -> ViewRequest:
        """Return a request with the held-out edges of the graph, if links are predicted."""
        if self.config.task != "links":
            return request
        self.links = held_out(request.source)
        check_ranking(self.metric, self.links)
        return request._replace(links=self.links)

    def tensor_comm(self, compute: ComputeContext, comm: Comm) -> TensorComm:
        """Return the communicator that carries the tensors of a training step between ranks. Collective."""
        return compute.tensors(comm)

    def view(self, context: TrainingContext) -> None:
        """Move the opened view to the compute device, or replace it by the part that this rank trains on."""
        context.replace_view(context.view)

    def batches(self, context: TrainingContext) -> BatchSource:
        """Return the steps of a round; raises `UsageError` on all ranks if the device of one does not fit the input layer. Collective."""
        agree_on_input_layer(context)
        return steps_of(context, shared_loader(context), context.view)

    # ---- a stage

    def stages(self) -> list[int]:
        """Return the largest number of rounds of each stage."""
        return [self.config.epochs]

    def model(self, context: TrainingContext, stage: int) -> Model:
        """Return the model that a stage trains; every rank then takes rank 0's weights. Called when a run enters the stage."""
        config, view, seed = self.config, context.view, context.initial_seed()
        if isinstance(self.module, Gnn):
            return self.module.checked(view.num_features, view.num_classes)
        if config.is_own_model:
            return self._own_model(context)
        width = 0 if self.edges is None else self.edges.num_features
        return make_model(config, view.targets.schema or view.num_features, view.num_classes, seed, view.features.blocks, width)

    def _own_model(self, context: TrainingContext) -> OwnModel:
        """Return the user's module as a model, the same on every rank; collective."""
        config, view = self.config, context.view

        def make() -> OwnModel:
            module = self.module
            if module is None:
                module = make_module(config.model, view.num_features, view.num_classes, context.initial_seed())
            return OwnModel(module, config.model, view.num_classes, config.layers)

        made = together(context.comm, make)
        for what, tensors in (("parameters", made.module.named_parameters()), ("buffers", made.module.named_buffers())):
            sizes = [f"{name} {tuple(tensor.shape)} {tensor.dtype}" for name, tensor in tensors]
            agree(context.comm, {f"the {what} of model {config.model}": sizes})
        return made

    def begin_stage(self, context: TrainingContext, stage: int) -> None:
        """Prepare a stage. A run that is resumed within the stage calls this again."""

    def begin_round(self, context: TrainingContext) -> None:
        """Prepare a round. A run that is resumed within the round calls this again."""

    def end_stage(self, context: TrainingContext, stage: int) -> None:
        """Finish a stage; the model has its best weights by validation score again."""

    # ---- a step

    def loss(self, context: TrainingContext, batch: StepBatch) -> tuple[torch.Tensor | None, float]:
        """Return the summed loss of this rank, on the compute device, and the number of vertices in it, which the host knows without it.

        The loss is None if there is nothing to differentiate.
        """
        batch = batch._replace(x=context.model.look_up(batch.x))
        if self.config.task != "nodes":
            return link_loss(context, batch) if self.config.task == "links" else edge_loss(context, batch)
        labelled = labelled_logits(context, batch)
        if labelled is None:
            return None, 0
        seed_weights = None if batch.minibatch is None else batch.minibatch.seed_weights
        weights = None if seed_weights is None else torch.from_numpy(seed_weights[labelled.rows])
        there = None if weights is None else context.compute.send(weights)
        return summed_loss(self.target, labelled.logits, labelled.labels, there), summed_shares(labelled.truth, weights)

    def combine_gradients(self, context: TrainingContext, sums: torch.Tensor) -> torch.Tensor:
        """Replace this rank's gradients by those of the step.

        Parameters
        ----------
        sums : float32, shape (3,)
            Of this rank: seeds in the loss, summed loss, and 1 if a signal asked the rank to stop; on the compute device.

        Returns
        -------
        float32, shape (3,)
            The same, summed over ranks. Every parameter of the model has its gradient afterwards. The loop reads sums on a device
            some steps later, and sums on the host at once; see `training.step`.

        Notes
        -----
        Sends ``2 (p - 1) (|theta| + 3)`` words over all ranks (kind "gradients"); gradients take the bytes of the gradient codec.
        Buffers are combined too (kind "model"), by the rule of `training.weights`. Learned rows that ranks divide are not in theta: their
        gradients go to their owners, see `distributed.matrix.learned_rows`.
        """
        comm, over, gradients = context.comm, context.tensor_comm, gradients_of(context.model)
        if self.config.gradient_codec == "fp32":
            add_over_ranks([*gradients, sums], comm, "gradients", over=over)
        else:
            add_over_ranks(gradients, comm, "gradients", self.config.gradient_codec)
            add_over_ranks([sums], comm, "gradients")
        combine_buffers(context.model, comm, over, context.virtual_ranks)
        context.model.add_shard_gradients(self.config.gradient_codec)
        divisor = torch.where(sums[0] > 0, sums[0], 1.0)  # the host does not wait for it
        for gradient in gradients:
            gradient.div_(divisor)
        on_host = divisor.cpu() if context.model.shards else divisor  # learned rows lie on the host
        for shard in context.model.shards.values():
            if shard.grad is not None:
                shard.grad.div_(on_host)
        return sums

    def end_step(self, context: TrainingContext, sums: torch.Tensor) -> torch.Tensor:
        """Return the sums of `combine_gradients` for the loop, after the optimizer's step."""
        return sums

    # ---- after a round

    def evaluate(self, context: TrainingContext) -> dict[str, float]:
        """Return the scores of the splits to score, on every rank. Not called for a run without evaluation."""
        return self.scores(context.model, context.view, context.comm)

    def scores(self, model: Model, view: View, comm: Comm) -> dict[str, float]:
        """Return the scores of a model on a view that the ranks of a communicator share; collective among them."""
        config, splits = self.config, self.config.eval_splits
        if config.task == "links":
            _, _, k = self.metric.partition("@")
            at = sorted({10, int(k or 10)})
            return evaluate_links(cast(LinkModel, model), view, self.links, comm, at, self._scoring(view), splits)
        if self.edges is not None:
            return evaluate_edges(cast(PairModel, model), view, self.edges.table, comm, self.metric, self._scoring(view), splits)
        if config.evaluation == "sampled" or isinstance(model, OwnModel | RelationalGnn):
            return evaluate_by_batches(model, view, comm, self.metric, self._scoring(view), splits)
        share = cast(InferenceShare, view.share)
        return evaluate(cast(Gnn, model), view.name, share, comm, self.metric, splits, config.eval_memory)

    def _scoring(self, view: View) -> BatchScoring:
        """Return the mini-batches of scores that are not computed layer by layer."""
        config = self.config
        if config.evaluation == "sampled":
            return sampled_scoring(config, view)
        return BatchScoring(Full((-1,) * config.layers), config.batch_size, memory=config.eval_memory)

    # ---- checkpoints and the report

    def before_save(self, context: TrainingContext) -> None:
        """Bring to rank 0 what a checkpoint needs from other ranks; called on every rank."""

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the tensors of the method that a resumed run needs beside the model and the optimizer."""
        return {}

    def load_state_dict(self, tensors: dict[str, torch.Tensor]) -> None:
        """Take these tensors back; called before `model` and `begin_stage` of the stage in which the run resumes."""

    def describe(self) -> dict[str, Any]:
        """Return the method's lines of the report."""
        return {}


class Labelled(NamedTuple):
    """The labelled seeds of a batch."""

    logits: torch.Tensor  # float32, shape (m, outputs)
    labels: torch.Tensor  # on the device of the logits, in the form that a loss takes
    rows: np.ndarray  # int64, shape (m,), among the mini-batch's seeds
    truth: torch.Tensor  # the labels on the host


def labelled_logits(context: TrainingContext, batch: StepBatch) -> Labelled | None:
    """Return the labelled seeds of a batch with their logits; None if there are none."""
    minibatch = batch.minibatch
    if minibatch is None:
        return None
    labels = context.view.truth(minibatch.seeds)
    rows = np.flatnonzero(has_label(labels))
    if not len(rows):
        return None
    assert batch.x is not None
    with context.compute.arithmetic():
        read = minibatch.inner if isinstance(batch.x, OwnAndMean) else minibatch
        names = context.view.names(read, context.progress.stage)
        logits = context.model(read.blocks, batch.x, context.view.degrees(read.vertices), names).float()
    send, seed_rows = context.compute.send, as_index(minibatch.seed_rows)
    labelled, truth = torch.from_numpy(rows), torch.from_numpy(labels[rows])
    at = seed_rows[send(labelled)] if seed_rows.device == logits.device else send(seed_rows[labelled])
    return Labelled(logits[at], send(truth), rows, truth)
