"""What tests of methods look at in a run: its losses and its weights."""

import torch


class Losses:
    """An observer that keeps the losses."""

    def __init__(self):
        self.losses = []

    def begin(self, *_):
        pass

    def step(self, epoch, step, loss):
        self.losses.append(loss)

    def epoch(self, line):
        pass

    def end(self):
        pass


def weights_of(trainer):
    """All weights in one vector."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in trainer.model.parameters()])
