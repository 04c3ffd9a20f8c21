"""LLCG: PSGD-PA whose server corrects every average on the whole graph.

    round r      K rho^r local steps on METIS parts, averaged       rho: --interval-growth
    correction   S steps of the server on minibatches of the whole graph, all neighbours, by an Adam of its own
    then         what comes of it is sent to all

Averaging alone has an error that more steps do not mend, as large as local gradients are apart from the global one (lost edges, and
parts that differ); the correction pulls back from it. S = 0 is PSGD-PA. No byte more travels. Alone, the rank makes both kinds
of steps.

Ramezani et al., "Learn locally, correct globally: a distributed algorithm for training graph neural networks", ICLR 2022.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch

from ... import samplers
from ...training.batches import Step
from ...training.isolated_batches import loader_apart
from ...training.weights import moments_at
from .psgd_pa import PsgdPa

if TYPE_CHECKING:
    from ...nn.model import Model
    from ...training.loop import Trainer

_SERVER = 0xD1B54A32D192ED03  # the server draws with a seed of its own


class Llcg(PsgdPa):
    """Learn locally, correct globally."""

    name: ClassVar[str] = "llcg"

    def model(self, trainer: Trainer, stage: int) -> Model:
        made = super().model(trainer, stage)
        config = self.config
        self._adam = torch.optim.Adam(made.parameters(), lr=config.server_lr or config.lr, weight_decay=config.weight_decay)
        if self.plane.serves and config.server_steps:
            everyone = samplers.make("full", config.fanouts, frontier=config.frontier)
            options = {"batch_size": config.batch_size, "bulk_size": 1, "prefetch": False}
            self._loader = loader_apart(trainer, self.judge, everyone, _SERVER, **options)
        return made

    def correct(self, trainer: Trainer) -> None:
        """The steps of the server; nothing travels."""
        for _ in range(self.config.server_steps):
            minibatch = next(iter(self._loader), None) or next(iter(self._loader))  # the first call may end an epoch
            assert minibatch is not None
            self._adam.zero_grad()
            self.judge.stream_sync.before_use([minibatch])
            loss, counted = self.loss(trainer, Step(minibatch, self.judge.features.fetch(minibatch.vertices)))
            if loss is not None:
                (loss / counted).backward()  # type: ignore[no-untyped-call]
                self._adam.step()
            self.judge.stream_sync.after_use(minibatch)
        self._adam.zero_grad()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Besides, the moments of the server and the place of its loader."""
        if not self.config.server_steps:
            return super().state_dict()
        moments = self._adam.state_dict()["state"].items()
        held = {f"server.{i}.{key}": torch.as_tensor(value) for i, one in moments for key, value in one.items()}
        return super().state_dict() | held | {"server_place": torch.tensor([self._loader.epoch, self._loader.state_dict()["step"]])}

    def load_state_dict(self, tensors: dict[str, torch.Tensor]) -> None:
        super().load_state_dict(tensors)
        if not (self.plane.serves and self.config.server_steps):
            return
        epoch, step = tensors["server_place"].tolist()
        self._loader.load_state_dict(self._loader.state_dict() | {"epoch": epoch, "step": step})
        for i, parameter in enumerate(self._adam.param_groups[0]["params"]):
            prefix = f"server.{i}."
            moments = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
            if moments:
                self._adam.state[parameter] = moments_at(parameter, moments)
