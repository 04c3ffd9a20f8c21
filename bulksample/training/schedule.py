"""The learning rate of each step: a formula of the number of the step, with no state, so a resumed run goes on with the same rates.

With t the number of a step, T the steps of the run, w those of the warm-up, e the factor at the end, S the steps of an epoch:

    rate = lr f(t)         f(t) = (t + 1) / (w + 1)                                             for t < w
    constant               f(t) = 1
    linear                 f(t) = 1 - (1 - e) (t - w) / (T - w)
    cosine                 f(t) = e + (1 - e) (1 + cos(pi (t - w) / (T - w))) / 2
    step                   f(t) = gamma^floor(t / (S k)), and in the warm-up that times (t + 1) / (w + 1)

So f(w) = 1, as in torch `LinearLR(start_factor=1 / (w + 1), total_iters=w)` is followed by `LinearLR`, `CosineAnnealingLR` or `StepLR`, of
which the first two end one step after the last. A step is one of the optimizer, of all ranks, so rates are the same on any number of ranks
that share its mini-batches. A method that trains one network after another has a schedule for each. Where epochs differ in their steps
(Grappa with fresh chunks), S is that of the present one, and t = S times the epoch plus the step in it.

Loshchilov, Hutter, "SGDR: stochastic gradient descent with warm restarts", ICLR 2017 (cosine); Goyal et al., "Accurate, large minibatch
SGD: training ImageNet in 1 hour", arXiv 1706.02677 (warm-up).
"""

from __future__ import annotations

import math

from ..config.groups import OptimizerOptions


def lr_factor(options: OptimizerOptions, round_: int, step: int, steps: int, rounds: int) -> float:
    """Return f(t) of a step, the share of `lr` that it takes.

    Step number `step` of round `round_`, both from 0, of `steps` steps in a round and `rounds` rounds.
    """
    t, first = round_ * steps + step, warmup_steps(options, steps)
    rise = (t + 1) / (first + 1) if t < first else 1.0
    if options.lr_schedule == "step":
        return float(rise * options.lr_gamma ** (round_ // options.lr_step_size))
    if options.lr_schedule == "constant" or t < first:
        return rise
    gone, end = (t - first) / (rounds * steps - first), options.lr_end_factor
    return 1 - (1 - end) * gone if options.lr_schedule == "linear" else end + (1 - end) * (1 + math.cos(math.pi * gone)) / 2


def warmup_steps(options: OptimizerOptions, steps: int) -> int:
    """Return the steps of the warm-up, w, given the steps of an epoch."""
    epochs = options.warmup.removesuffix("epochs")
    return int(epochs) * (1 if epochs == options.warmup else steps)


def warmup_warning(options: OptimizerOptions, steps: int, rounds: int) -> str:
    """Return a warning of a warm-up that does not end within a run of `rounds` rounds of `steps` steps; else an empty string."""
    first, run = warmup_steps(options, steps), rounds * steps
    if not 0 < run <= first:
        return ""
    return (
        f"warmup takes {first} steps and the run has {run}: the learning rate reaches {run / (first + 1):.3g} of lr; use a shorter warmup, "
        "or more epochs"
    )
