"""Sample and train over a slow network: measured seconds beside seconds predicted from messages and bytes.

Needs root, iproute2 (ip, tc), util-linux and MPICH's mpirun; exits with code 2 and a reason if one is missing or the kernel refuses.
Ranks run on simulated hosts, one on each (see `netlab`; the network of the machine is not touched). Every case runs on unshaped links and
at every rate. The file of results is rewritten after every launch:

    bulksample sample    an epoch, one bulk per rank, every exchange, c = 1 and 2
    bulksample train     the second of two epochs, without evaluation: `owner` by default, c = 1 and 2, with features in fp32, in fp16, with
                         a cache of hot rows, fetched for 4 mini-batches at once, and with all three

Let m messages and w bytes be sent one after the other in a phase (sampling, fetching, reducing), as `foreseen` predicts. They are those of
the busiest rank; in the stages of rows and rows-oblivious, where one rank sends at a time, the bytes of a process column. Then

    predicted = sum over phases of  alpha m + w / beta,    beta = rate * 1448 / 1514, the share of a frame that is not a header

alpha is measured beforehand: an exchange of one byte with every other rank, divided by its messages. Computing is not predicted. The
unshaped time of a case is mostly computing, since all ranks share the cores of this machine. So "unshaped" + w / beta is the expectation
for "measured", and "added" = measured - unshaped compares with w / beta.

The last table compares the bytes that all hosts put on their links during a launch with those that `Comm` counted. The difference is
headers and acknowledgements; the start and end of ranks by MPI's launcher (measured with an empty program and subtracted); message heads
of MPI; and all-reduces, which `Comm` counts as the best algorithm would send them.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import netlab
from foreseen import Foresight, busiest, differing, over_ranks
from harness import Numbers, quick, some_of, summary
from ranks import EXCHANGES, Grid, WorkOptions, launch, mpirun, sample, train, work_of

from bulksample.report.drawing import COLOURS, legend, new_figure, stacked

TOGETHER = 4  # minibatches
PAYLOAD = 1448 / 1514  # TCP with time stamps over Ethernet

# Median seconds of an exchange of the given bytes with every other rank
PROBE = """
import json, statistics, sys, time
import numpy as np
from bulksample.distributed.comm.world import world

def seconds(comm, size, times):
    parts, found = [np.zeros(size, np.uint8)] * comm.size, []
    for _ in range(times):
        comm.barrier()
        began = time.perf_counter()
        comm.alltoall(parts, "control")
        found.append(time.perf_counter() - began)
    return statistics.median(found)

with world() as comm:
    small, large = seconds(comm, 1, 200), seconds(comm, 10**6, 5)
    if comm.rank == 0:
        others = comm.size - 1
        found = {"alpha_seconds": small / (2 * others), "bytes_per_second": (10**6 - 1) * others / (large - small)}
        open(sys.argv[1], "w").write(json.dumps(found))
"""
EMPTY = "from bulksample.distributed.comm.world import world\nwith world(): pass"


class Case(NamedTuple):
    """A command on a grid: one case of the tables."""

    command: str
    grid: Grid

    def __str__(self) -> str:
        grid = self.grid
        cached = f", cache {grid.cache_bytes / 1e6:.1f} MB" if grid.cache_bytes else ""
        joined = f", {grid.together} together" if grid.together > 1 else ""
        features = f", {grid.codec}{cached}{joined}" if self.command == "train" else ""
        return f"{self.command}, c = {grid.replication}, {grid.exchange}{features}"


@dataclass(frozen=True, kw_only=True)
class NetworkOptions(WorkOptions):
    vertices: int = 2**16
    degree: int = 50
    hidden: int = 64
    fanouts: Numbers = (15, 10, 5)
    batch_size: int = 128
    bulk_size: Annotated[int, "k, mini-batches of a rank"] = 16
    cache_bytes: Annotated[int, "cache bytes per rank, in the cases with a cache"] = 2**21
    rates: netlab.Rates = ("100mbit",)
    hosts: Annotated[int, "number of hosts, with a rank on each"] = 4
    replications: Annotated[Numbers, "values of c; those that do not divide the hosts are skipped"] = (1, 2)
    commands: some_of("sample", "train") = ("sample", "train")
    rounds: Annotated[int, "launches per case, for the spread of seconds"] = 3


def cases(options: NetworkOptions) -> list[Case]:
    found = []
    for command in options.commands:
        for c in (c for c in options.replications if options.hosts % c == 0):
            exchanges = EXCHANGES if command == "sample" else options.train_exchanges
            found += [Case(command, Grid(options.hosts, c, exchange)) for exchange in exchanges]
            if command == "train":
                cache = options.cache_bytes
                ways = [("fp16", 0, 1), ("fp32", cache, 1), ("fp32", 0, TOGETHER), ("fp16", cache, TOGETHER)]
                found += [Case(command, Grid(options.hosts, c, "owner", *way)) for way in ways]
    return found


class Bench:
    """All cases at all rates; `round` makes every launch once, and yields after each."""

    def __init__(self, foresight: Foresight, lab: netlab.Lab, launcher: str, options: NetworkOptions) -> None:
        self.foresight, self.lab, self.timeout = foresight, lab, options.timeout
        self.start = partial(lab.command, launcher)
        self.rates = list(dict.fromkeys(["none", *options.rates]))
        self.cases = cases(options)
        self.links: dict[str, dict[str, float]] = {}
        self.runs: dict[tuple[str, Case], list[dict[str, Any]]] = {(rate, case): [] for rate in self.rates for case in self.cases}

    def round(self) -> Iterator[None]:
        for rate in self.rates:
            self.lab.shape(rate)
            if rate not in self.links:
                self.links[rate] = self.probe()
            for case in self.cases:
                run = self.launched(case)
                self.runs[rate, case].append(run)
                print(f"{rate}: {case}: {run['seconds']:.2f} s", file=sys.stderr, flush=True)
                yield

    def probe(self) -> dict[str, float]:
        """Measure the links: alpha, the rate of a large exchange, and the bytes of an empty program."""
        ranks = len(self.lab.hosts)
        with tempfile.TemporaryDirectory() as folder:
            result = Path(folder) / "probe.json"
            launch(self.start(ranks, [sys.executable, "-c", PROBE, str(result)]), self.timeout)
            found = json.loads(result.read_text())
        before = sum(self.lab.sent_bytes())
        launch(self.start(ranks, [sys.executable, "-c", EMPTY]), self.timeout)
        return found | {"start_bytes": sum(self.lab.sent_bytes()) - before}

    def launched(self, case: Case) -> dict[str, Any]:
        """Launch once; return its seconds, counted bytes, and bytes on the links."""
        before = sum(self.lab.sent_bytes())
        result = (sample if case.command == "sample" else train)(self.foresight.work, case.grid, self.start, self.timeout)
        wire = sum(self.lab.sent_bytes()) - before
        first, timed = (result, result) if case.command == "sample" else result["lines"]
        return {"seconds": timed["seconds"], "sent": first["bytes_sent"], "counted": result["bytes_sent"]["total"], "wire": wire}

    def line(self, rate: str, case: Case) -> dict[str, Any]:
        """Return a row of the tables."""
        grid, foresight, link, runs = case.grid, self.foresight, self.links[rate], self.runs[rate, case]
        if case.command == "sample":
            foreseen, phases = foresight.sample(grid), [foresight.sampling_path(grid)]
        else:
            exchanged = [busiest(foresight.fetched(grid, 1)), busiest(foresight.reduced(grid))]
            foreseen, phases = foresight.train(grid), [foresight.sampling_path(grid, 1), *exchanged]
        messages, sent = (sum(figures) for figures in zip(*phases, strict=True))
        return {
            "rate": rate, "command": case.command, **asdict(grid), "messages": messages, "bytes": sent,
            "alpha_seconds": link["alpha_seconds"] * messages, "beta_seconds": sent / (PAYLOAD * netlab.bytes_per_second(rate)),
            "launches": len(runs), "seconds": summary([run["seconds"] for run in runs]),
            "unshaped_seconds": summary([run["seconds"] for run in self.runs["none", case]]),
            "differing": [fault for run in runs for fault in differing(run["sent"], over_ranks(foreseen))],
            "counted_bytes": runs[0]["counted"], "wire_bytes": summary([run["wire"] - link["start_bytes"] for run in runs]),
        }  # fmt: skip

    def lines(self) -> list[dict[str, Any]]:
        return [{"case": str(case), **self.line(rate, case)} for (rate, case), runs in self.runs.items() if runs]


def show(lines: list[dict[str, Any]], links: dict[str, dict[str, float]]) -> None:
    """Format the tables, one table of times per rate."""
    for rate, link in links.items():
        figures = f"alpha {1e6 * link['alpha_seconds']:.0f} us, an exchange of 1 MB parts {8e-6 * link['bytes_per_second']:.0f} Mbit/s"
        print(f"\nLinks of {rate}: {figures}")
    for rate in [rate for rate in links if rate != "none"]:
        print(f"\n{rate}, seconds\n\n| case | messages | MB | predicted | measured | (min to max) | unshaped | added | w / beta |")
        print("|:--|--:|--:|--:|--:|--:|--:|--:|--:|")
        for line in (line for line in lines if line["rate"] == rate):
            seconds, unshaped = line["seconds"], line["unshaped_seconds"]["median"]
            print(
                f"| {line['case']} | {line['messages']} | {line['bytes'] / 1e6:.2f} | {line['alpha_seconds'] + line['beta_seconds']:.2f} | "
                f"{seconds['median']:.2f} | {seconds['min']:.2f} to {seconds['max']:.2f} | {unshaped:.2f} | "
                f"{seconds['median'] - unshaped:.2f} | {line['beta_seconds']:.2f} |"
            )
    print("\n| rate | case | counted, MB | on the links, MB | (min to max) | ratio |\n|--:|:--|--:|--:|--:|--:|")
    for line in lines:
        wire, counted = line["wire_bytes"], line["counted_bytes"]
        print(
            f"| {line['rate']} | {line['case']} | {counted / 1e6:.2f} | {wire['median'] / 1e6:.2f} | "
            f"{wire['min'] / 1e6:.2f} to {wire['max'] / 1e6:.2f} | {wire['median'] / counted:.3f} |"
        )


def plot(lines: list[dict[str, Any]], path: Path) -> None:
    """Draw a panel per rate: unshaped seconds and w / beta as bars, measured seconds as dots with their spread."""
    shaped = list(dict.fromkeys(line["rate"] for line in lines if line["rate"] != "none"))
    height = 1 + 0.3 * len(lines) / (1 + len(shaped))
    with new_figure(len(shaped), (5.0, height), share_y=True) as (figure, every):
        for axes, rate in zip(every, shaped, strict=True):
            own = [line for line in lines if line["rate"] == rate]
            parts = {"unshaped": [line["unshaped_seconds"]["median"] for line in own], "w / beta": [line["beta_seconds"] for line in own]}
            stacked(axes, [line["case"] for line in own], parts, {"unshaped": COLOURS[-1], "w / beta": COLOURS[0]})
            middle = [line["seconds"]["median"] for line in own]
            spread = [[abs(line["seconds"][end] - m) for line, m in zip(own, middle, strict=True)] for end in ("min", "max")]
            axes.errorbar(middle, range(len(own)), xerr=spread, fmt="k.", label="measured")
            axes.autoscale(axis="x")
            axes.set(title=rate, xlabel="seconds")
        legend(figure, every[0], 3)
        figure.savefig(path, dpi=80)


@quick(vertices=2**13, cache_bytes=2**18, rounds=1)
def slow_network(options: NetworkOptions) -> Iterator[dict[str, Any]]:
    netlab.go_inside()
    foresight = Foresight(work_of(options, options.work or Path(tempfile.gettempdir())))
    about = foresight.sizes() | options.of("hosts", "fanouts", "batch_size", "bulk_size", "hidden", "cache_bytes")
    print(json.dumps(about), flush=True)
    bench = Bench(foresight, netlab.Lab(options.hosts), mpirun(), options)
    for _ in range(options.rounds):
        for _ in bench.round():
            yield {**about, "links": bench.links, "lines": bench.lines()}
    lines = bench.lines()
    show(lines, bench.links)
    if options.plot:
        plot(lines, options.plot)
    faults = {f"{line['case']}: {fault}" for line in lines for fault in line["differing"]}
    print("\n" + "\n".join(sorted(faults) or ["every byte as predicted"]))
    if faults:
        raise SystemExit(1)
