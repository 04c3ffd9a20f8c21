"""`bulksample compare`: train by several methods at equal conditions, and tell them apart in one table and its plots."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import EXIT_PEER_LOST, UsageError
from .configured import Asked, flag, parsed, words
from .output import JsonOption, SeedOption, emit

if TYPE_CHECKING:
    from ..report.compare import Contestant, ContestantRun, SharedSetup
    from ..report.network import NetworkModel

_OURS = ("seed", "metrics", "quiet", "checkpoint", "resume", "method")  # options of `train` that are set here, beside --json
_EXIT_SOME_FAILED = 1


def compare(
    directory: Annotated[Path, typer.Argument(help="A graph in the store format, with features and labels.")],
    methods: Annotated[str, typer.Option(help="Joined by commas, or all; options of one as in sync,adaqp:bits=4:overlap=false.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Directory of the table, the plots, and what every run wrote.")],
    options: Annotated[list[str] | None, typer.Argument(metavar="[-- OPTIONS]", help="Of `train`, for all methods, after --.")] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Options of `train` in YAML; flags after -- go before.")] = None,
    ranks: Annotated[int, typer.Option(min=1, help="Started by mpirun; one rank needs no MPI.")] = 1,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each method, with seeds from --seed on.")] = 1,
    network: Annotated[
        list[str] | None, typer.Option(help="Named as in plan, or ethernet-10g:between=1.25e6:latency=1e-4; may be repeated.")
    ] = None,
    launcher: Annotated[str | None, typer.Option(help="Starts the ranks; {ranks} is their number. mpirun -n {ranks} unless given.")] = None,
    limit: Annotated[float, typer.Option(help="Seconds that one run may take.")] = 3600.0,
    resume: Annotated[bool, typer.Option("--resume/--fresh", help="Keep finished runs of an earlier call, or repeat them too.")] = True,
    plots: Annotated[bool, typer.Option(help="Draw accuracy against bytes and against seconds; needs matplotlib.")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", help="No line for each run, no table.")] = False,
    seed: SeedOption = 0,
    json_file: JsonOption = None,
) -> None:
    """Run methods on the same graph, partition, seeds and model, one after another; exit 1 if one failed, after the others."""
    from ..methods import METHODS
    from ..methods.averaging.options import AVERAGING
    from ..report.compare import SharedSetup, compare, contestants
    from ..report.launch import Stopped, refuse_inside_a_launch, starter, stoppable
    from ..report.network import network_models

    refuse_inside_a_launch()
    asked, networks, common = contestants(methods, METHODS, AVERAGING), network_models(network or ["ethernet-10g"], ranks), tuple(options or ())
    if config:
        asked = [replace(one, base=_of_file(config, one)) for one in asked]
    for one in asked:
        _check(one, common)
    if not limit > 0:
        raise UsageError(f"limit must be positive; got {limit} s")
    setup = SharedSetup(directory, ranks, tuple(starter(ranks, launcher)), common, limit)
    try:
        with stoppable():
            runs = compare(setup, asked, list(range(seed, seed + repeats)), out, not resume, quiet)
    except Stopped as stopped:
        print(f"bulksample: stopped by {stopped}; the same command goes on with what is not finished", file=sys.stderr)
        raise typer.Exit(EXIT_PEER_LOST) from None
    result = _write(setup, config, runs, networks, out, plots)
    emit(result, json_file, "compare", table=False)
    if not quiet and str(json_file) != "-":
        print((out / "table.md").read_text(), end="")
    if result["failed"]:
        raise typer.Exit(_EXIT_SOME_FAILED)


def _of_file(file: Path, one: Contestant) -> tuple[str, ...]:
    """The options in a configuration file, as flags of `train`; raises `UsageError`. Those of other methods are left out."""
    from ..config.file import Given, read
    from ..config.sample import SampleConfig
    from ..methods.config import TrainConfig

    groups = {name: group for name, (group, _) in TrainConfig.by_name().items()}
    given = {
        name: value for name, value in read(file, TrainConfig, SampleConfig).items()
        if name not in _OURS and (not groups[name].methods or one.method in groups[name].methods)
    }  # fmt: skip
    return words(Asked(given | {"method": Given(one.method, "")}).config(TrainConfig))


def _check(one: Contestant, common: tuple[str, ...]) -> None:
    """Raise `UsageError` if `train` would not take the options of a contestant, or if one is not for the user to set."""
    from ..config.file import Given
    from ..methods.config import TrainConfig

    try:
        asked, json_file = parsed(TrainConfig, [*one.base, *common, *one.options])
        set_here = [flag(name) for name in _OURS if name in asked] + ["--json"] * (json_file is not None)
        if not set_here:
            Asked(asked | {"method": Given(one.method, "")}).config(TrainConfig)
    except UsageError as error:
        raise UsageError(f"{one.label}: train refuses its options: {error}") from None
    if set_here:
        raise UsageError(f"{one.label}: compare itself sets {set_here[0]} of every run; leave it out")


def _write(
    setup: SharedSetup, config: Path | None, runs: list[ContestantRun], networks: list[NetworkModel], out: Path, plots: bool
) -> dict[str, Any]:
    """The table in three forms, and the plots; returns the JSON object."""
    from ..report import table

    rows = table.rows(runs, networks)
    seeds = sorted({run.seed for run in runs})
    asked = " ".join([*(["--config", str(config)] if config else []), *setup.options]) or "the defaults of train"
    caption = f"{setup.graph.name}, ranks: {setup.ranks}, seeds: {', '.join(map(str, seeds))}, options: {asked}"
    result = {
        "graph": str(setup.graph), "ranks": setup.ranks, "seeds": seeds, "options": list(setup.options), "start": list(setup.start),
        "processors": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "networks": {one.label: {"latency": one.latency, "bytes_per_second": one.bandwidth} for one in networks},
        "methods": rows, "failed": [row["method"] for row in rows if row["failed"]],
        "runs": [
            {"method": run.label, "seed": run.seed, "folder": str(run.folder.relative_to(out)), "exit_code": run.exit_code,
             "seconds": run.seconds, "kept": run.kept, "failure": run.failure}
            for run in runs
        ],
        "plots": [path.name for path in (_draw(runs, networks, out) if plots else [])],
    }  # fmt: skip
    (out / "table.md").write_text(table.to_markdown(rows, networks, caption))
    (out / "table.csv").write_text(table.to_csv(rows))
    emit(result, out / "table.json", "compare", table=False)
    return result


def _draw(runs: list[ContestantRun], networks: list[NetworkModel], out: Path) -> list[Path]:
    """The plots; without matplotlib none, and a message."""
    from ..report.drawing import draw_comparison

    try:
        return draw_comparison(runs, networks, out)
    except UsageError as error:
        print(f"bulksample: no plots were drawn: {error}", file=sys.stderr)
        return []
