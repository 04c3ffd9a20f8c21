"""Hold predictions of `bulksample plan` against real runs of 4 ranks: bytes by kind, and seconds of an epoch and of an evaluation.

FOLDER keeps the graph: a block model of 60,000 vertices with 64 features. A round measures the network (`info --network`), then before each
run a replicated `sample` and a replicated, evaluated `train`, from whose three files `plan` predicts the run. `--quick` takes two rounds,
some five minutes on two cores. The runs:

    replicated     topology and features on every rank
    partitioned    both in block rows, on a 2 x 2 grid
    host           features once in the memory of the machine
    evaluated      partitioned, and exact scores after each epoch
    rows           topology on every rank, features in block rows: four parts of METIS
    local          the same, and each rank takes seeds near its rows: --seed-locality 4

An epoch is the median of those after the first. Bytes of the kinds topology, features and gradients must equal `foreseen.Foresight`,
which draws the same mini-batches; the figure of `plan` beside them is an expectation over random graphs. Seconds are ratios, measured over
predicted, of every round and their median. A busy machine slows the ranks, and the runs that measure the rates as well; the processor
seconds of the busiest rank tell work from waiting. `evaluated_over_partitioned` compares two runs whose epochs do the same. `aim` counts
ratios outside 0.67 to 1.5. The exit code is 1 where bytes differ.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from foreseen import Foresight, over_ranks, together
from harness import quick, summary
from ranks import Grid, Work, graph_in, launch
from typer import Argument

from bulksample.report.launch import starter

RANKS, EPOCHS, TIMEOUT = 4, 5, 600.0
AIM = (1 / 1.5, 1.5)
PUBLISHED = ["--topology", "replicated", "--features", "partitioned", "--replication", "1", "--evaluate", "none"]
CASES: dict[str, list[str]] = {
    "replicated": ["--topology", "replicated", "--features", "replicated", "--evaluate", "none"],
    "partitioned": ["--topology", "partitioned", "--features", "partitioned", "--replication", "2", "--evaluate", "none"],
    "host": ["--topology", "replicated", "--features", "host", "--evaluate", "none"],
    "evaluated": ["--topology", "partitioned", "--features", "partitioned", "--replication", "2", "--evaluate", "exact"],
    "rows": PUBLISHED,
    "local": [*PUBLISHED, "--seed-locality", str(RANKS)],
}
IN_PARTS = ("rows", "local")  # run from a folder of parts
KINDS = ("topology", "features", "gradients")


class Bench:
    """The runs of one workload, from its store or a folder of its parts, with their results in a folder."""

    def __init__(self, work: Work, folder: Path) -> None:
        self.work, self.folder = work, folder
        self.parts = replace(work, directory=folder / "parts")
        made = ["partition", str(work.directory), "--parts", str(RANKS), "--by", "metis", "-o", f"{self.parts.directory}/"]
        launch([sys.executable, "-m", "bulksample", *made], TIMEOUT)

    def of(self, case: str) -> Work:
        return self.parts if case in IN_PARTS else self.work

    def run(self, name: str, *arguments: str) -> Any:
        """Run a command of bulksample on the ranks, and return its JSON."""
        path = self.folder / f"{name}.json"
        program = [sys.executable, "-m", "bulksample", *arguments, "--overwrite", "--json", str(path)]
        launch([*starter(RANKS, None), *program], TIMEOUT)
        return json.loads(path.read_text())

    def train(self, name: str, epochs: int, *options: str) -> dict[str, Any]:
        """Train some epochs of a case, or of another name on the store; return the report, with the lines of the epochs."""
        lines = self.folder / f"{name}.jsonl"
        told = ["--hidden", str(self.work.hidden), "--epochs", str(epochs), "--quiet", "--metrics", str(lines)]
        found = self.run(name, "train", *self.of(name).options(), *told, *options)
        return found | {"lines": [json.loads(line) for line in lines.read_text().splitlines()]}

    def probe(self) -> None:
        """Measure the network."""
        self.run("network", "info", "--network")

    def calibrate(self) -> None:
        """Measure the rates of sampling, gathering, computing and evaluating."""
        self.run("sample", "sample", *self.work.options())
        self.train("train", EPOCHS, *CASES["replicated"][:-1], "exact")

    def predicted(self, case: str) -> dict[str, Any]:
        """Return the prediction of `plan` for a case, with the rates measured last."""
        measured = [part for name in ("sample", "train") for part in ("--measured", str(self.folder / f"{name}.json"))]
        path = self.folder / "plan.json"
        work = self.of(case)
        asked = [
            "plan", "--from", str(work.directory), "--ranks", str(RANKS), "--device", "cpu", "--network", str(self.folder / "network.json"),
            "--fanouts", ",".join(map(str, work.fanouts)), "--batch-size", str(work.batch_size), "--hidden", str(work.hidden),
        ]  # fmt: skip
        launch([sys.executable, "-m", "bulksample", *asked, *CASES[case], *measured, "--overwrite", "--json", str(path)], TIMEOUT)
        (row,) = json.loads(path.read_text())["placements"]
        return dict(row)

    def measured(self, case: str) -> dict[str, Any]:
        """Run a case; return its bytes in the first epoch, and the seconds of later ones."""
        lines = self.train(case, EPOCHS, *CASES[case])["lines"]
        return {
            "bytes": {kind: lines[1]["training_bytes"][kind] for kind in KINDS},
            "seconds": statistics.median(line["seconds"] for line in lines[1:]),
            "processor": statistics.median(line["compute_seconds"] for line in lines[1:]),
            "evaluation": statistics.median(line["phases"]["evaluate"] for line in lines[1:]),
            "activations": lines[1]["bytes_sent"]["activations"],
        }


def foreseen(foresight: Foresight, case: str) -> dict[str, int]:
    """Return the bytes of the second epoch by kind."""
    if case in IN_PARTS:
        grid = Grid(RANKS, 1, "owner")
        return over_ranks(together(foresight.fetched(grid, 1), foresight.reduced(grid)))
    grid = Grid(RANKS, 2, "owner")
    if "partitioned" not in CASES[case]:
        return over_ranks(together(foresight.reduced(grid)))
    return over_ranks(together(foresight.sampled(grid, 1), foresight.fetched(grid, 1), foresight.reduced(grid)))


def measure(directory: Path, rounds: int) -> dict[str, Any]:
    """Run all rounds; return, for each case, bytes measured and predicted, and ratios of seconds."""
    work = Work(directory, "sage", (10, 5), batch_size=64, bulk_size=19, hidden=64)
    found: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {case: [] for case in CASES}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(work, Path(folder))
        for _ in range(rounds):
            bench.probe()
            for case, pairs in found.items():
                bench.calibrate()
                pairs.append((bench.measured(case), bench.predicted(case)))
        whole, drawn = Foresight(work), {"rows": Foresight(bench.parts), "local": Foresight(bench.parts, RANKS)}
        cases = {case: _line(pairs, foreseen(drawn.get(case, whole), case)) for case, pairs in found.items()}
    both = [(one[0], other[0]) for one, other in zip(found["evaluated"], found["partitioned"], strict=True)]
    alike = {key: ratios([one[key] / other[key] for one, other in both]) for key in ("seconds", "processor")}
    return {"cases": cases, "evaluated_over_partitioned": alike, "aim": aim(cases)}


def aim(cases: dict[str, Any]) -> dict[str, Any]:
    """Count the ratios of single rounds, and of medians, that are outside the aim."""
    lines = [line["measured_over_predicted"] for case in cases.values() for line in (case, case.get("evaluation")) if line]
    figures = {"rounds": [ratio for line in lines for ratio in line["rounds"]], "medians": [line["median"] for line in lines]}
    low, high = AIM
    return {"range": AIM, **{name: {"outside": sum(not low <= x <= high for x in of), "of": len(of)} for name, of in figures.items()}}


def ratios(found: list[float]) -> dict[str, Any]:
    """Return the ratio of every round, their median, minimum and maximum."""
    return {**summary(found), "rounds": found}


def _line(pairs: list[tuple[dict[str, Any], dict[str, Any]]], exact: dict[str, int]) -> dict[str, Any]:
    """Return one case: bytes of all rounds are equal; ratios of seconds differ."""
    run, plan = pairs[0]
    line = {
        "bytes": run["bytes"],
        "foreseen": exact,
        "equal": all(one["bytes"] == exact for one, _ in pairs),
        "bytes_of_plan": {kind: plan["bytes_sent"][kind] for kind in KINDS},
        "seconds": summary([one["seconds"] for one, _ in pairs]),
        "processor_seconds": summary([one["processor"] for one, _ in pairs]),
        "seconds_of_plan": summary([other["seconds"]["epoch"] for _, other in pairs]),
        "measured_over_predicted": ratios([one["seconds"] / other["seconds"]["epoch"] for one, other in pairs]),
    }
    if plan["evaluation"]["kind"] == "exact":
        line["evaluation"] = {
            "seconds": summary([one["evaluation"] for one, _ in pairs]),
            "measured_over_predicted": ratios([one["evaluation"] / other["evaluation"]["seconds"] for one, other in pairs]),
            "bytes": run["activations"],
            "bytes_of_plan": plan["evaluation"]["bytes"],
        }
    return line


@quick(rounds=2)
def plan(folder: Annotated[Path | None, Argument(help="keeps the graph")] = None, rounds: int = 5) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as temporary:
        found = measure(graph_in(folder or Path(temporary), 60_000, 15, 64), rounds)
    yield {"load_after": os.getloadavg()[0], "rounds": rounds, **found}
    if not all(line["equal"] for line in found["cases"].values()):
        raise SystemExit(1)
