"""An observer that keeps what a training run reports."""


class Recorder:
    """Keeps the loss of every step in `losses` and the line of every epoch in `lines`."""

    def __init__(self):
        self.losses, self.lines, self.ended = [], [], False

    def begin(self, epoch, epochs, steps):
        self.began = (epoch, epochs, steps)

    def step(self, epoch, step, loss):
        self.losses.append(loss)

    def epoch(self, line):
        self.lines.append(line)

    def end(self):
        self.ended = True
