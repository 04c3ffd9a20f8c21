"""Sample and train over MPI on every process grid: bytes sent beside bytes predicted, seconds by phase, memory.

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

import json
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from foreseen import KINDS, Foresight, differing, over_ranks
from harness import Numbers, quick, some_of, summary
from ranks import EXCHANGES, Grid, Start, WorkOptions, mpirun, sample, train, work_of

from bulksample.report.drawing import new_figure
from bulksample.report.launch import stoppable

Line = dict[str, Any]
Results = dict[str, list[Line]]  # by command


def grids(ranks: tuple[int, ...], exchanges: Sequence[str]) -> list[Grid]:
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


@dataclass(frozen=True, kw_only=True)
class GridOptions(WorkOptions):
    ranks: Numbers = (1, 2, 4, 8, 16)
    commands: some_of(*COMMANDS) = tuple(COMMANDS)
    rounds: Annotated[int, "launches per grid, for the spread of seconds"] = 1


def measure(command: str, grid: Grid, foresight: Foresight, start: Start, options: GridOptions) -> Line:
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


def sweep(foresight: Foresight, start: Start, options: GridOptions) -> Iterator[Results]:
    """Measure the rows of each command; print each, and yield all so far; a failed launch is a row with a "failure"."""
    results: Results = {}
    for command in options.commands:
        lines = results[command] = []
        head = HEADS[command]
        print(f"\nbulksample {command}: MB and seconds\n\n{head}\n|{'--:|' * (head.count('|') - 1)}")
        for grid in grids(options.ranks, EXCHANGES if command == "sample" else options.train_exchanges):
            lines.append({"ranks": grid.ranks, "replication": grid.replication, "exchange": grid.exchange})
            try:
                lines[-1] |= measure(command, grid, foresight, start, options)
            except RuntimeError as error:
                lines[-1]["failure"] = str(error)
            print(f"| {' | '.join(cells(lines[-1]))} |", flush=True)
            yield results


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


@quick(vertices=2**12, ranks=(1, 2, 4))
def grid(options: GridOptions) -> Iterator[dict[str, Any]]:
    launcher, found = mpirun(), list[str]()

    def start(ranks: int, program: list[str]) -> list[str]:
        return [launcher, "-n", str(ranks), *program]

    with stoppable(), tempfile.TemporaryDirectory() as folder:
        foresight = Foresight(work_of(options, options.work or Path(folder)))
        about = foresight.sizes() | options.of("sampler", "fanouts", "batch_size", "bulk_size", "hidden", "rounds")
        print(json.dumps(about))
        for results in sweep(foresight, start, options):
            found = faults(results)
            if options.plot:
                plot(results, options.plot)
            yield {**about, "faults": found, "results": results}
    print("\n" + "\n".join(found or ["every byte as predicted, and the same minibatches on every grid"]))
    if found:
        raise SystemExit(1)
