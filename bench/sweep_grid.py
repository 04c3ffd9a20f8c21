"""Sampling and training over MPI on every process grid: bytes sent next to bytes predicted, seconds by phase, memory.

    python bench/sweep_grid.py [--ranks 1,2,4,8,16] [--train-exchanges owner,rows,rows-oblivious] [--rounds 1] [--quick] [--work FOLDER]
                               [--json FILE] [--plot FILE]

For every p, every c that divides it and every exchange (owner, rows, rows-oblivious), `mpirun -n p bulksample sample` draws an epoch and
`mpirun -n p bulksample train` trains two, on a graph in block rows; it trains with `owner` only unless asked, since the exchange changes
nothing but the sampling, and a rank that trains takes seconds to start. Ranks are processes of this machine, more than it has
processors, so bytes are what they would be on a cluster and seconds are not: ranks take turns. Bytes are summed over ranks, each message
counted once; those of training are of its first epoch, without evaluation. Seconds are of the slowest rank, medians of all rounds; those
of training are of its second epoch. Memory is that of the largest rank: its peak, and what it holds of the graph and the features.

Every grid must draw the same minibatches, by their digest, and send exactly what `foreseen` says; the exit code is 1 if one does not.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from foreseen import KINDS, Foresight, differing, over_ranks
from harness import machine, summary
from ranks import EXCHANGES, Grid, Start, add_work_options, mpirun, names, numbers, sample, train, work_of

from bulksample.report.launch import stoppable

FULL = {
    "vertices": 2**15, "degree": 30, "features": 64, "hidden": 32, "fanouts": (10, 5), "batch_size": 32, "bulk_size": 4,
    "ranks": (1, 2, 4, 8, 16),
}  # fmt: skip
QUICK = {**FULL, "vertices": 2**12, "ranks": (1, 2, 4)}


def grids(ranks: tuple[int, ...], exchanges: list[str]) -> list[Grid]:
    return [Grid(p, c, exchange) for p in ranks for c in range(1, p + 1) if p % c == 0 for exchange in exchanges]


def sampled(rounds: list[dict], foresight: Foresight, grid: Grid) -> dict[str, Any]:
    """A line of the table of `sample`, from the results of all rounds."""
    first, foreseen = rounds[0], over_ranks(foresight.sample(grid))
    sent = {kind: first["bytes_sent"][kind] for kind in KINDS}
    return {"sent": sent, "foreseen": foreseen, "seconds": summary([found["seconds"] for found in rounds]), "digest": first["digest"]}


def trained(rounds: list[dict], foresight: Foresight, grid: Grid) -> dict[str, Any]:
    """A line of the table of `train`."""
    first, foreseen = rounds[0]["lines"][0], over_ranks(foresight.train(grid))
    seconds = summary([found["lines"][1]["seconds"] for found in rounds])
    phases = {name: statistics.median(found["lines"][1]["phases"][name] for found in rounds) for name in first["phases"]}
    sent = {kind: first["bytes_sent"][kind] for kind in KINDS}
    return {"sent": sent, "foreseen": foreseen, "seconds": seconds, "phases": phases, "held_bytes": rounds[0]["held_bytes"]}


COMMANDS = {"sample": (sample, sampled), "train": (train, trained)}


def measure(command: str, grid: Grid, foresight: Foresight, start: Start, options: argparse.Namespace) -> dict[str, Any]:
    """One grid, so many rounds."""
    run, line_of = COMMANDS[command]
    rounds = [run(foresight.work, grid, start, options.timeout) for _ in range(options.rounds)]
    line = {"ranks": grid.ranks, "replication": grid.replication, "exchange": grid.exchange, **line_of(rounds, foresight, grid)}
    memory = {"peak_bytes": max(found["peak_bytes"] for found in rounds)}
    return line | memory | {"launch_seconds": summary([found["launch_seconds"] for found in rounds])}


def cells(line: dict[str, Any]) -> dict[str, str]:
    """A line as the table shows it: MB and seconds."""
    row = {"p": f"{line['ranks']}", "c": f"{line['replication']}", "exchange": line["exchange"]}
    for kind in KINDS if "phases" in line else KINDS[:1]:
        row |= {kind: f"{line['sent'][kind] / 1e6:.3f}", f"{kind} predicted": f"{line['foreseen'][kind] / 1e6:.3f}"}
    row |= {"": "differs" if differing(line["sent"], line["foreseen"]) else "equal", "epoch, s": f"{line['seconds']['median']:.2f}"}
    if "phases" in line:
        spent = {**line["phases"], "compute": sum(line["phases"][name] for name in ("forward", "backward", "step"))}
        row |= {name: f"{spent[name]:.2f}" for name in ("sample", "fetch", "compute", "reduce")}
        row["held"] = f"{(line['held_bytes']['adjacency'] + line['held_bytes']['features']) / 1e6:.2f}"
    return row | {"peak": f"{line['peak_bytes'] / 1e6:.0f}"}


def table(command: str, foresight: Foresight, start: Start, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The lines of a command, shown as they come."""
    lines = []
    for grid in grids(options.ranks, list(EXCHANGES) if command == "sample" else options.train_exchanges):
        lines.append(measure(command, grid, foresight, start, options))
        row = cells(lines[-1])
        if len(lines) == 1:
            print(f"\nbulksample {command}: MB and seconds\n\n| {' | '.join(row)} |\n|{'--:|' * len(row)}")
        print(f"| {' | '.join(row.values())} |", flush=True)
    return lines


def faults(results: dict[str, list[dict]]) -> list[str]:
    """What did not come out as it must."""
    lines = [(command, line) for command in results for line in results[command]]
    found = [
        f"{command}, p = {line['ranks']}, c = {line['replication']}, {line['exchange']}: {fault}"
        for command, line in lines for fault in differing(line["sent"], line["foreseen"])
    ]  # fmt: skip
    digests = {line["digest"] for command, line in lines if command == "sample"}
    return found + ([f"the grids have drawn {len(digests)} different epochs"] if len(digests) > 1 else [])


PANELS = [
    ("sample", "topology"), ("sample", "seconds"), ("train", "gradients"),
    ("train", "topology"), ("train", "features"), ("train", "seconds"),
]  # fmt: skip


def plot(results: dict[str, list[dict]], path: Path) -> None:
    """Bytes and seconds by grid; crosses are predictions."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 8), layout="constrained", dpi=60)
    for axes, (command, what) in zip(figure.subplots(2, 3).flat, PANELS, strict=True):
        for exchange in dict.fromkeys(line["exchange"] for line in results.get(command, [])):
            lines = [line for line in results[command] if line["exchange"] == exchange]
            grid = [f"{line['ranks']}, {line['replication']}" for line in lines]
            if what == "seconds":
                axes.plot(grid, [line["seconds"]["median"] for line in lines], "o-", label=exchange)
            else:
                axes.plot(grid, [line["sent"][what] / 1e6 for line in lines], "o-", label=exchange)
                axes.plot(grid, [line["foreseen"][what] / 1e6 for line in lines], "kx")
        axes.set(title=f"{command}: {what}", xlabel="p, c", ylabel="seconds of an epoch" if what == "seconds" else "MB, all ranks")
        axes.set_yscale("symlog", linthresh=0.1)
        axes.tick_params(axis="x", rotation=60)
        axes.legend()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=numbers, help="each p")
    parser.add_argument("--commands", type=names, default=["sample", "train"])
    parser.add_argument("--train-exchanges", type=names, default=["owner"], help="of train; sample takes all")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="a smaller graph, and up to 4 ranks")
    add_work_options(parser)
    parser.set_defaults(**FULL)
    options = parser.parse_args()
    if options.quick:
        parser.set_defaults(**QUICK)
        options = parser.parse_args()
    launcher = mpirun()

    def start(ranks: int, program: list[str]) -> list[str]:
        return [launcher, "-n", str(ranks), *program]

    with stoppable(), tempfile.TemporaryDirectory() as folder:
        foresight = Foresight(work_of(options, options.work or Path(folder)))
        about = machine() | foresight.sizes() | {name: getattr(options, name) for name in ("fanouts", "batch_size", "bulk_size", "hidden")}
        print(json.dumps(about))
        results = {command: table(command, foresight, start, options) for command in options.commands}
    found = faults(results)
    print("\n" + "\n".join(found or ["every byte as predicted, and the same minibatches on every grid"]))
    if options.json:
        options.json.write_text(json.dumps({**about, "rounds": options.rounds, "faults": found, "results": results}, indent=1) + "\n")
    if options.plot:
        plot(results, options.plot)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
