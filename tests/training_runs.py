"""Training runs of tests: one call trains and keeps the report, the losses and the trainer."""

import torch
from recorder import Recorder

from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer


def run_training(source, comm=None, **options):
    """Train, and return the report, a `Recorder` and the trainer."""
    recorder = Recorder()
    trainer = make_trainer(TrainConfig.of(**options), source, comm, [recorder])
    return trainer.run(), recorder, trainer


def weights_of(trainer):
    """Return all weights in one vector."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in trainer.model.parameters()])
