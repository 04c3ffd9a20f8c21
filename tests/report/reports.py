"""Made-up results with numbers that are easy to calculate with."""

from pathlib import Path

from bulksample.distributed.comm.base import KINDS
from bulksample.report.compare import ContestantRun


def counted(total=0, **kinds):
    return {"total": total or sum(kinds.values()), **dict.fromkeys(KINDS, 0), **kinds}


def report(score=0.5, metric="accuracy", split="test", epochs=4, compute=2.0, megabytes=8, messages=100, **more):
    """Return a report of two ranks that sent equally many bytes."""
    return {
        "metric": metric, f"{split}_{metric}": score, "epochs_in_this_run": epochs, "seconds_per_epoch": 0.25, "compute_seconds": compute,
        "training_bytes": counted(gradients=megabytes * 10**6), "training_messages": counted(gradients=messages),
        "busiest_rank": {"messages": messages // 2, "bytes": megabytes * 10**6 // 2}, **more,
    }  # fmt: skip


def line(score=None, megabytes=2, seconds=1.0, metric="accuracy", split="test"):
    """Return the line of an epoch, evaluated if there is a score."""
    scores = {} if score is None else {f"{split}_{metric}": score}
    spent = {"busiest_rank": {"messages": 10, "bytes": megabytes * 10**6 // 2}, "training_bytes": counted(gradients=megabytes * 10**6)}
    return {"seconds": seconds, "compute_seconds": seconds / 2, **spent, **scores}


def run(label="sync", seed=0, failure=None, lines=(), **figures):
    return ContestantRun(
        label, seed, Path("nowhere"), None if failure else report(**figures), list(lines), failure, int(bool(failure)), 1.0, False
    )
