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


def weights_and_report(source, comm, **options):
    """Train, and return all weights in one vector and the report."""
    report, _, trainer = run_training(source, comm, **options)
    return weights_of(trainer), report


def run_with_digests(source, comm, compute=None, **options):
    """Train; return the loss of every step, the report, and (id, digest) of this rank's mini-batches of the first epoch."""
    recorder = Recorder()
    trainer = make_trainer(TrainConfig.of(**options), source, comm, [recorder], compute)
    digests = [(minibatch.id, minibatch.digest()) for minibatch in trainer.context.batches.loader if minibatch is not None]
    trainer.context.batches.loader.epoch = 0
    return recorder.losses, trainer.run(), digests


def weights_of(trainer):
    """Return all weights in one vector."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in trainer.model.parameters()])
