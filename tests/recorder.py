"""Callbacks of training runs: one keeps what is reported, one ends the run."""


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


class Crash(Exception):
    """Raised by `CrashesAt`."""


class CrashesAt(Recorder):
    """Ends the run after a number of steps, as a crash would."""

    def __init__(self, steps):
        super().__init__()
        self.left = steps

    def step(self, epoch, step, loss):
        super().step(epoch, step, loss)
        self.left -= 1
        if not self.left:
            raise Crash("as asked")
