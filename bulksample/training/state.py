"""The whole state of a run as tensors and JSON, and back: what makes a resumed run the same run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..errors import UsageError
from ..version import __version__
from . import checkpoint
from .checkpoint import Snapshot
from .weights import moments_at

if TYPE_CHECKING:
    from .loop import Trainer


@dataclass
class Progress:
    """Where a run stands, beyond its tensors and its loader."""

    steps: int = 0  # made since the beginning
    seeds: float = 0.0  # in the loss of this epoch so far
    loss: float = 0.0  # summed over them
    best_epoch: int = -1
    best_scores: dict[str, float] = field(default_factory=dict)
    last_loss: float | None = None
    since_best: int = 0  # evaluations without a better one
    finished: bool = False
    stage: int = 0
    rounds: int = 0  # made in this stage

    def next_stage(self) -> None:
        """Stand before the first round of the stage that follows; the scores of the last one are kept until there are newer ones."""
        self.stage, self.rounds, self.since_best, self.finished = self.stage + 1, 0, 0, False

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))

    def from_json(self, state: dict[str, Any]) -> None:
        for key in vars(self):
            setattr(self, key, state[key])


def capture(trainer: Trainer) -> Snapshot:
    """Weights, Adam's moments, the best weights so far, the loader's place, the running sums and the scores."""
    tensors = {f"model.{name}": tensor for name, tensor in trainer.model.state_dict().items()}
    tensors |= {f"best.{name}": tensor for name, tensor in trainer.best_weights.items()}
    for name, parameter in trainer.model.named_parameters():
        for key, value in trainer.optimizer.state.get(parameter, {}).items():
            tensors[f"adam.{name}.{key}"] = torch.as_tensor(value)
    tensors |= {f"method.{name}": tensor for name, tensor in trainer.method.state_dict().items()}
    state = {
        "version": __version__,
        "config": trainer.config.computed(),
        "graph": trainer.view.fingerprint,
        "loader": trainer.batches.state_dict(),
        "progress": trainer.progress.to_json(),
    }
    return tensors, state


def restore(trainer: Trainer, tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
    """Put a captured state back.

    Raises
    ------
    UsageError
        If the state is of another configuration, graph or number of ranks, naming what differs.
    """
    for what, was, now in (("graph", state["graph"], trainer.view.fingerprint), *_differences(state["config"], trainer.config.computed())):
        if was != now:
            raise UsageError(f"the checkpoint does not fit this run: {what} was {was!r} and is {now!r} now")
    trainer.batches.load_state_dict(state["loader"])
    trainer.progress.from_json(state["progress"])
    trainer.method.load_state_dict(_below(tensors, "method."))
    if trainer.progress.stage:
        trainer.set_model(trainer.method.model(trainer, trainer.progress.stage))
    trainer.model.load_state_dict(_below(tensors, "model."))
    trainer.best_weights = _below(tensors, "best.")
    for name, parameter in trainer.model.named_parameters():
        moments = _below(tensors, f"adam.{name}.")
        if moments:
            trainer.optimizer.state[parameter] = moments_at(parameter, moments)


def resume(trainer: Trainer) -> bool:
    """Go on from the checkpoint that the configuration names; False where ``auto`` finds none.

    Rank 0 reads; the others receive its tensors (kind "model"), so only rank 0 needs to see the directory.
    """
    config, comm = trainer.config, trainer.comm
    tensors: dict[str, torch.Tensor] = {}
    state: dict[str, Any] | None = None
    if comm.rank == 0:
        assert config.resume is not None
        if config.resume == "auto":
            found = checkpoint.newest(config.checkpoint or "")
            if found is not None:
                tensors, state = found[1]
        else:
            tensors, state = checkpoint.load(config.resume)
    if comm.size > 1:
        tensors, state = _from_rank_0(trainer, tensors, state)
    if state is None:
        return False
    restore(trainer, tensors, state)
    return True


def _from_rank_0(trainer: Trainer, tensors: dict[str, torch.Tensor], state: dict[str, Any] | None) -> Snapshot | tuple[dict, None]:
    comm = trainer.comm
    shapes = [[name, list(tensor.shape), str(tensor.numpy().dtype)] for name, tensor in tensors.items()]
    shapes, state = comm.gather_control([shapes, state])[0]
    received = {}
    for name, shape, dtype in shapes:
        array = tensors[name].numpy().copy() if comm.rank == 0 else np.empty(shape, dtype)
        received[name] = torch.from_numpy(comm.broadcast(np.ascontiguousarray(array), "model")).reshape(shape)
    return received, state


def _below(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _differences(was: dict[str, Any], now: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    return [(key, was.get(key), now.get(key)) for key in sorted(was.keys() | now.keys())]
