"""The published methods of model averaging: what their parts are, and what the server does with an average.

    PSGD-PA      METIS parts; the average is the model
    RandomTMA    every vertex goes to a random part                  keeps about 1 / M of the edges
    SuperTMA     METIS clusters, each goes to a random part          keeps rho + (1 - rho) (Q / M - 1) / (Q - 1) of them
    LLCG         METIS parts; the server corrects every average on the whole graph

with Q clusters that hold a share rho of the edges. METIS cuts few edges, so neighborhoods stay whole. But the parts differ in labels and
features, which costs the average accuracy, losing a part loses its classes, and the error does not vanish with more steps if local
gradients differ from the global one. Random parts lose neighbors instead. Q = M is PSGD-PA, Q = n is RandomTMA. Which method is better
depends on the graph: the trade-off that the server prints shows what each loses.

TMA's publication averages after fixed seconds (`--interval 2s --tolerate-failures`), weighs responders equally, and uses about 15000
clusters on graphs of a million vertices. Here parts are as even in vertices (random) or in clusters (super) as possible. A round of LLCG is

    round r      K rho^r local steps on METIS parts, averaged       rho: --interval-growth
    correction   S steps of the server on mini-batches of the whole graph, all neighbors, by an Adam of its own
    then         the corrected average is sent to all trainers

S = 0 is PSGD-PA. No extra byte travels. A rank alone makes both kinds of steps.

Ramezani et al., "Learn locally, correct globally: a distributed algorithm for training graph neural networks", ICLR 2022 (PSGD-PA, LLCG).
Zhu et al., "Simplifying distributed neural network training on massive graphs: randomized partitions improve model aggregation",
arXiv 2305.09887 (TMA).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch

from ... import samplers
from ...graph.minibatch import MiniBatch
from ...loading.loader import BulkLoader
from ...loading.position import check_version
from ...nn.model import Model
from ...training.batches import StepBatch
from ...training.clipping import clip_gradients
from ...training.context import TrainingContext
from ...training.loaders import private_loader
from ...training.weights import Adam, moments_at, set_lr
from .method import Averaging
from .participant import weights_of

_SERVER_SEED = 0xD1B54A32D192ED03  # the server draws with its own seed


class PSGDPA(Averaging):
    """Parallel SGD with periodic averaging."""

    name: ClassVar[str] = "psgd-pa"
    partition_kind: ClassVar[str] = "metis"


class RandomTMA(Averaging):
    """Time-based model averaging over random vertices."""

    name: ClassVar[str] = "random-tma"
    partition_kind: ClassVar[str] = "random"


class SuperTMA(Averaging):
    """Time-based model averaging over random METIS clusters."""

    name: ClassVar[str] = "super-tma"
    partition_kind: ClassVar[str] = "super"


class LLCG(PSGDPA):
    """Learn locally, correct globally: PSGD-PA whose server trains each average for a few steps on the whole graph."""

    name: ClassVar[str] = "llcg"

    def model(self, context: TrainingContext, stage: int) -> Model:
        model, config = super().model(context, stage), self.config
        self._adam = Adam(model.parameters(), lr=config.server_lr or config.lr, weight_decay=config.weight_decay)
        if self.participant.serves and config.server_steps:
            all_neighbours = samplers.make("full", config.fanouts, frontier=config.frontier)
            options = {"batch_size": config.batch_size, "bulk_size": 1, "prefetch": False}
            self._loader = private_loader(context, self.whole_view, all_neighbours, _SERVER_SEED, **options)
            self._minibatches = _epochs(self._loader)
        return model

    def correct(self, context: TrainingContext) -> None:
        """Train the averaged model for S steps on the server, on mini-batches of the whole graph; nothing is sent."""
        view = self.whole_view
        for _ in range(self.config.server_steps):
            minibatch = next(self._minibatches)
            self._adam.zero_grad()
            view.stream_sync.before_use([minibatch])
            batch = StepBatch(minibatch, view.features.fetch(minibatch.vertices))  # lives until fetches wait for the step
            loss, count = self.loss(context, batch)
            if loss is not None:
                (loss / count).backward()  # type: ignore[no-untyped-call]
                set_lr(self._adam, (self.config.server_lr or self.config.lr) * context.lr_factor)
                if self.config.clip_norm is not None:
                    clip_gradients(context, self.config.clip_norm)
                self._adam.step()
            view.stream_sync.after_use(minibatch)
        self._adam.zero_grad()
        if not all(weights.isfinite().all() for weights in weights_of(context.model)):
            self._adam.state.clear()  # the server rejects this average, and moments that are not finite would spoil the next

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the tensors of PSGD-PA, the moments of the server's Adam, and the position of its loader."""
        if not self.config.server_steps:
            return super().state_dict()
        moments = self._adam.state_dict()["state"].items()
        server = {f"server.{i}.{key}": torch.as_tensor(value) for i, state in moments for key, value in state.items()}
        place = [self._loader.state_dict()[key] for key in ("epoch", "step", "version")]
        return super().state_dict() | server | {"server_place": torch.tensor(place)}

    def load_state_dict(self, tensors: dict[str, torch.Tensor]) -> None:
        super().load_state_dict(tensors)
        if not self.config.server_steps:
            return
        place = dict(zip(("epoch", "step", "version"), tensors["server_place"].tolist(), strict=False))  # version 1 has no number
        check_version(place, within=place["step"] > 0)  # on every rank; the server alone knows how many steps its epochs have
        if not self.participant.serves:
            return
        self._loader.load_state_dict(self._loader.state_dict() | place)
        self._minibatches = _epochs(self._loader)
        for i, parameter in enumerate(self._adam.param_groups[0]["params"]):
            prefix = f"server.{i}."
            moments = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
            if moments:
                self._adam.state[parameter] = moments_at(parameter, moments)


def _epochs(loader: BulkLoader) -> Iterator[MiniBatch]:
    """Yield the mini-batches of one epoch after another, for ever; one rank has them all."""
    while True:
        yield from (minibatch for minibatch in loader if minibatch is not None)
