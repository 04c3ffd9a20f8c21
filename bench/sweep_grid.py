"""Sample and train over MPI on every process grid: bytes sent beside bytes predicted, seconds by phase, memory.

    python bench/sweep_grid.py [--ranks 1,2,4,8,16] [--train-exchanges owner,rows,rows-oblivious] [--rounds 1] [--quick] [--work FOLDER]
                               [--json FILE] [--plot FILE]

For every p, every c that divides it and every exchange (owner, rows, rows-oblivious), `mpirun -n p bulksample sample` draws an epoch and
`mpirun -n p bulksample train` trains two epochs on a graph in block rows. By default only `owner` trains: the exchange changes only the
sampling, and a training rank takes seconds to start. Ranks are processes of this machine, more than it has cores. So bytes are those of a
cluster and seconds are not, since ranks take turns. Bytes are summed over ranks, each message counted once; training bytes are those of the
first epoch, without evaluation. Seconds are those of the slowest rank, medians of all rounds; training seconds are those of the second
epoch. Memory is the peak of the largest rank, and what it holds of graph and features.

Every grid must draw the same mini-batches, by digest, and send exactly the bytes of `foreseen`; otherwise, or if a launch fails, the exit
code is 1. The file of results is rewritten after every launch.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from foreseen import KINDS, Foresight, differing, over_ranks
from harness import machine, summary
from ranks import EXCHANGES, Grid, Start, mpirun, numbers, parser_of, read_work_options, sample, some_of, train, work_of

from bulksample.report.chart_style import new_figure
from bulksample.report.launch import stoppable

FULL = {
    "vertices": 2**15, "degree": 30, "features": 64, "hidden": 32, "fanouts": (10, 5), "batch_size": 32, "bulk_size": 4,
    "ranks": (1, 2, 4, 8, 16),
}  # fmt: skip
QUICK = {**FULL, "vertices": 2**12, "ranks": (1, 2, 4)}


Line = dict[str, Any]
Results = dict[str, list[Line]]  # by command


def grids(ranks: tuple[int, ...], exchanges: list[str]) -> list[Grid]:
    return [Grid(p, c, exchange) for p in ranks for c in range(1, p + 1) if p % c == 0 for exchange in exchanges]


def sampled(rounds: list[dict], foresight: Foresight, grid: Grid) -> Line:
    """Return a row of the table of `sample`, from the results of all rounds."""
    first, foreseen = rounds[0], over_ranks(foresight.sample(grid))
    sent = {kind: first["bytes_sent"][kind] for kind in KINDS}
    return {"sent": sent, "foreseen": foreseen, "seconds": summary([found["seconds"] for found in rounds]), "digest": first["digest"]}


def trained(rounds: list[dict], foresight: Foresight, grid: Grid) -> Line:
    """Return a row of the table of `train`."""
    first, foreseen = rounds[0]["lines"][0], over_ranks(foresight.train(grid))
    seconds = summary([found["lines"][1]["seconds"] for found in rounds])
    phases = {name: statistics.median(found["lines"][1]["phases"][name] for found in rounds) for name in first["phases"]}
    sent = {kind: first["bytes_sent"][kind] for kind in KINDS}
    return {"sent": sent, "foreseen": foreseen, "seconds": seconds, "phases": phases, "held_bytes": rounds[0]["held_bytes"]}


COMMANDS = {"sample": (sample, sampled), "train": (train, trained)}


def measure(command: str, grid: Grid, foresight: Foresight, start: Start, options: argparse.Namespace) -> Line:
    """Run all rounds of one grid and return its row."""
    run, line_of = COMMANDS[command]
    rounds = [run(foresight.work, grid, start, options.timeout) for _ in range(options.rounds)]
    peak = max(found["peak_bytes"] for found in rounds)
    return line_of(rounds, foresight, grid) | {"peak_bytes": peak, "launch_seconds": summary([found["launch_seconds"] for found in rounds])}


HEADS = {
    "sample": "| p | c | exchange | topology | predicted | | epoch, s | peak |",
    "train": "| p | c | exchange | topology | predicted | features | predicted | gradients | predicted | | "
             "epoch, s | sample | fetch | compute | reduce | held | peak |",
}  # fmt: skip


def cells(line: Line) -> list[str]:
    """Format a row of the table: MB and seconds."""
    grid = [f"{line['ranks']}", f"{line['replication']}", line["exchange"]]
    if "failure" in line:
        return [*grid, "failed"]
    kinds = KINDS if "phases" in line else KINDS[:1]
    sent = [f"{line[which][kind] / 1e6:.3f}" for kind in kinds for which in ("sent", "foreseen")]
    verdict = "differs" if differing(line["sent"], line["foreseen"]) else "equal"
    rest = [f"{line['seconds']['median']:.2f}"]
    if "phases" in line:
        spent = {**line["phases"], "compute": sum(line["phases"][name] for name in ("forward", "backward", "step"))}
        rest += [f"{spent[name]:.2f}" for name in ("sample", "fetch", "compute", "reduce")]
        rest.append(f"{(line['held_bytes']['adjacency'] + line['held_bytes']['features']) / 1e6:.2f}")
    return [*grid, *sent, verdict, *rest, f"{line['peak_bytes'] / 1e6:.0f}"]


def sweep(foresight: Foresight, start: Start, options: argparse.Namespace, keep: Callable[[Results], None]) -> Results:
    """Measure the rows of each command, and print and keep each; a failed launch is a row with a "failure"."""
    results: Results = {}
    for command in options.commands:
        lines = results[command] = []
        head = HEADS[command]
        print(f"\nbulksample {command}: MB and seconds\n\n{head}\n|{'--:|' * (head.count('|') - 1)}")
        for grid in grids(options.ranks, list(EXCHANGES) if command == "sample" else options.train_exchanges):
            lines.append({"ranks": grid.ranks, "replication": grid.replication, "exchange": grid.exchange})
            try:
                lines[-1] |= measure(command, grid, foresight, start, options)
            except RuntimeError as error:
                lines[-1]["failure"] = str(error)
            print(f"| {' | '.join(cells(lines[-1]))} |", flush=True)
            keep(results)
    return results


def faults(results: Results) -> list[str]:
    """List rows that failed or differ from the prediction."""
    found = [
        f"{command}, p = {line['ranks']}, c = {line['replication']}, {line['exchange']}: {fault}"
        for command, lines in results.items() for line in lines
        for fault in ([line["failure"]] if "failure" in line else differing(line["sent"], line["foreseen"]))
    ]  # fmt: skip
    digests = {line["digest"] for line in results.get("sample", []) if "digest" in line}
    return found + ([f"the grids have drawn {len(digests)} different epochs"] if len(digests) > 1 else [])


PANELS = {"sample": ("topology", "seconds"), "train": ("topology", "features", "gradients", "seconds")}


def plot(results: Results, path: Path) -> None:
    """Draw bytes and seconds by grid, a panel for each; crosses are predictions."""
    panels = [(command, what, lines) for command, lines in results.items() for what in PANELS[command]]
    with new_figure(len(panels), (5.0, 3.6)) as (figure, every):
        for axes, (command, what, lines) in zip(every, panels, strict=True):
            draw(axes, [line for line in lines if "failure" not in line], what)
            axes.set_title(f"{command}: {what}")
        figure.savefig(path, dpi=80)


def draw(axes: Any, lines: list[Line], what: str) -> None:
    """Draw one panel, a curve per exchange."""
    for exchange in dict.fromkeys(line["exchange"] for line in lines):
        own = [line for line in lines if line["exchange"] == exchange]
        grid = [f"{line['ranks']}, {line['replication']}" for line in own]
        if what == "seconds":
            axes.plot(grid, [line["seconds"]["median"] for line in own], "o-", label=exchange)
        else:
            axes.plot(grid, [line["sent"][what] / 1e6 for line in own], "o-", label=exchange)
            axes.plot(grid, [line["foreseen"][what] / 1e6 for line in own], "kx")
    axes.set(xlabel="p, c", ylabel="seconds of an epoch" if what == "seconds" else "MB, all ranks")
    if what == "seconds":
        axes.set_ylim(bottom=0)
    else:
        axes.set_yscale("symlog", linthresh=0.1)
    axes.tick_params(axis="x", rotation=90)
    axes.legend()


def read_options() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--ranks", type=numbers, help="numbers of ranks, such as 1,2,4")
    parser.add_argument("--commands", type=some_of(*COMMANDS), default=list(COMMANDS), help="sample, train, or both")
    parser.add_argument("--rounds", type=int, default=1, help="launches per grid, for the spread of seconds")
    parser.add_argument("--quick", action="store_true", help="a smaller graph and up to 4 ranks")
    return read_work_options(parser, FULL, QUICK)


def main() -> None:
    options, launcher = read_options(), mpirun()

    def start(ranks: int, program: list[str]) -> list[str]:
        return [launcher, "-n", str(ranks), *program]

    with stoppable(), tempfile.TemporaryDirectory() as folder:
        foresight = Foresight(work_of(options, options.work or Path(folder)))
        asked = {name: getattr(options, name) for name in ("sampler", "fanouts", "batch_size", "bulk_size", "hidden", "rounds")}
        about = machine() | foresight.sizes() | asked
        print(json.dumps(about))

        def keep(results: Results) -> None:
            if options.json:
                options.json.write_text(json.dumps({**about, "faults": faults(results), "results": results}, indent=1) + "\n")
            if options.plot:
                plot(results, options.plot)

        found = faults(sweep(foresight, start, options, keep))
    print("\n" + "\n".join(found or ["every byte as predicted, and the same minibatches on every grid"]))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
