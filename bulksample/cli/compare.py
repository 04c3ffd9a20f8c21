"""`bulksample compare`: train several methods under equal conditions, and report them in one table with plots."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..config.file import Given, read
from ..config.train import SampleConfig
from ..distributed.comm.process_end import Stopped
from ..errors import EXIT_PEER_LOST, UsageError
from ..methods import METHODS
from ..methods.config import TrainConfig
from ..methods.options import AVERAGING
from ..methods.readers import READERS, unread
from .configured import Requested, as_arguments, flag, parse_arguments
from .output import JsonOption, SeedOption, emit, ending, hold_outputs

if TYPE_CHECKING:
    from ..report.compare import Contestant, ContestantRun, SharedSetup
    from ..report.network import NetworkModel

_OURS = ("seed", "metrics", "quiet", "checkpoint", "resume", "method")  # options of `train` that `compare` sets, beside --json
_EXIT_SOME_FAILED = 1
_METHODS = f"Methods joined by commas, or all: {', '.join(METHODS)}. With options of a method: sync,adaqp:bits=4:overlap=false."


def compare(
    directory: Annotated[Path, typer.Argument(help="A graph in the store format, with features and labels.")],
    methods: Annotated[str, typer.Option(help=_METHODS)],
    out: Annotated[
        Path, typer.Option("-o", "--out", callback=ending("--out"), help="Folder for the table, the plots and the files of every run.")
    ],
    options: Annotated[list[str] | None, typer.Argument(metavar="[-- OPTIONS]", help="Options of train for all methods, after --.")] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Options of train in YAML. Options after -- override it.")] = None,
    ranks: Annotated[int, typer.Option(min=1, help="Number of ranks, started by mpirun. One rank needs no MPI.")] = 1,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each method, with seeds from --seed on.")] = 1,
    network: Annotated[
        list[str] | None, typer.Option(help="Network of plan, or ethernet-10g:between=1.25e6:latency=1e-4; may be repeated.")
    ] = None,
    launcher: Annotated[str | None, typer.Option(help="Command that starts the ranks. Default: mpirun -n {ranks}.")] = None,
    limit: Annotated[float, typer.Option(help="Seconds that one run may take.")] = 3600.0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Repeat finished runs. By default those in the folder are kept.")] = False,
    plots: Annotated[bool, typer.Option(help="Plots of accuracy against bytes and against seconds; need matplotlib.")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", help="No line for each run, no table.")] = False,
    seed: SeedOption = 0,
    json_file: JsonOption = None,
) -> None:
    """Train methods one after another on the same graph, partition, seeds and model. Exit code 1 if one failed.

    Where the graph has validation vertices, every run trains until its validation score no longer rises: 40 epochs without a better
    one, at most 200. --epochs, --eval-every, --patience, --evaluate or --eval-splits after -- replaces this for all methods.
    """
    from ..data.parts_manifest import graph_manifest
    from ..report.compare import CONVERGENCE, SharedSetup, compare, contestants
    from ..report.launch import refuse_inside_a_launch, starter, stoppable
    from ..report.network import network_models

    refuse_inside_a_launch()
    compared, networks = contestants(methods, METHODS, AVERAGING), network_models(network or ["ethernet-10g"], ranks)
    if config:
        compared = [replace(one, base=_of_file(config, one)) for one in compared]
    validated = "mask.val" in graph_manifest(directory).arrays  # a run can stop by the score of these vertices
    if directory.resolve() in (out.resolve(), *out.resolve().parents):
        raise UsageError(f"--out: got {out}, in the folder of the graph {directory}; use a folder of its own")
    converges = validated and not _length_is_named(options or [], config)
    common = (*(CONVERGENCE if converges else ()), *(options or ()))
    for one in compared:
        _check(one, common, converges)
    if not limit > 0:
        raise UsageError(f"limit must be positive; got {limit} s; use --limit 3600")
    continues = (out / "runs").is_dir()  # then tables are made again of all runs; `compare` below refuses runs with other options
    hold_outputs(overwrite or continues, json_file, *(out / f"table.{kind}" for kind in ("json", "md", "csv")))
    setup = SharedSetup(directory, ranks, tuple(starter(ranks, launcher)), common, limit)
    try:
        with stoppable():
            runs = compare(setup, compared, list(range(seed, seed + repeats)), out, overwrite, quiet)
    except Stopped as stopped:
        print(f"bulksample: stopped by {stopped}; the same command continues with the runs that are not finished", file=sys.stderr)
        raise typer.Exit(EXIT_PEER_LOST) from None
    result = _write(setup, config, runs, networks, out, plots)
    emit(result, json_file, "compare", table=False)
    if not quiet and str(json_file) != "-":
        print((out / "table.md").read_text(encoding="utf-8"), end="")
    if result["failed"]:
        raise typer.Exit(_EXIT_SOME_FAILED)


def _length_is_named(common: list[str], config: Path | None) -> bool:
    """Return True if an option for all methods says how long to train, or how to evaluate."""
    from ..report.compare import DECIDE_LENGTH

    named = set(read(config, TrainConfig, SampleConfig)) if config else set()
    words = {word.partition("=")[0] for word in common}
    return any(name in named or {flag(name), flag(name).replace("--", "--no-", 1)} & words for name in DECIDE_LENGTH)


def _of_file(file: Path, one: Contestant) -> tuple[str, ...]:
    """Return the options in a configuration file as flags of `train`, without those that the method does not read; raise `UsageError`."""
    groups = {name: group for name, (group, _) in TrainConfig.by_name().items()}
    options = {
        name: value for name, value in read(file, TrainConfig, SampleConfig).items()
        if name not in _OURS and (not groups[name].methods or one.method in groups[name].methods)
    }  # fmt: skip
    method = {"method": Given(one.method, "")}
    without = unread(Requested({name: value for name, value in options.items() if name not in READERS} | method).config(TrainConfig))
    return as_arguments(Requested({name: value for name, value in options.items() if name not in without} | method).config(TrainConfig))


def _check(one: Contestant, common: tuple[str, ...], converges: bool) -> None:
    """Raise `UsageError` if `train` refuses the options of a contestant, or if `compare` itself sets one of them.

    `converges` says that runs stop by the patience of `CONVERGENCE`, for which no user asked.
    """
    try:
        requested, json_file = parse_arguments(TrainConfig, [*one.base, *common, *one.options])
        set_here = [flag(name) for name in _OURS if name in requested] + ["--json"] * (json_file is not None)
        if not set_here:
            options = Requested(requested | {"method": Given(one.method, "")})
            if converges and Requested(options | {"patience": Given("0", "")}).config(TrainConfig).evaluation == "none":
                raise UsageError(
                    "runs stop when their validation score no longer rises, and this one is not scored; "
                    "give --epochs after -- to train all methods for a number of epochs"
                )
            options.config(TrainConfig)
    except UsageError as error:
        raise UsageError(f"{one.label}: train refuses its options: {error}") from None
    if set_here:
        raise UsageError(f"{one.label}: compare itself sets {set_here[0]} of every run; leave it out")


def _write(
    setup: SharedSetup, config: Path | None, runs: list[ContestantRun], networks: list[NetworkModel], out: Path, plots: bool
) -> dict[str, Any]:
    """Write the table as JSON, Markdown and CSV, and the plots; return the JSON object."""
    from ..backends.native import processors
    from ..data.atomic import write_file
    from ..report import table
    from ..report.drawing import draw_comparison

    rows, drawn = table.rows(runs, networks), list[Path]()
    if plots:
        try:
            drawn = draw_comparison(runs, networks, out)
        except UsageError as error:  # such as without matplotlib
            print(f"bulksample: no plots were drawn: {error}", file=sys.stderr)
    seeds = sorted({run.seed for run in runs})
    settings = " ".join([*(["--config", str(config)] if config else []), *setup.options]) or "the defaults of train"
    caption = f"{setup.graph.name}, ranks: {setup.ranks}, seeds: {', '.join(map(str, seeds))}, options: {settings}"
    result = {
        "graph": str(setup.graph), "ranks": setup.ranks, "seeds": seeds, "options": list(setup.options), "start": list(setup.start),
        "processors": processors(),
        "networks": {one.label: {"latency": one.latency, "bytes_per_second": one.bandwidth} for one in networks},
        "methods": rows, "failed": [row["method"] for row in rows if row["failed"]],
        "runs": [
            {"method": run.label, "seed": run.seed, "folder": str(run.folder.relative_to(out)), "exit_code": run.exit_code,
             "seconds": run.seconds, "kept": run.kept, "failure": run.failure}
            for run in runs
        ],
        "plots": [path.name for path in drawn],
    }  # fmt: skip
    write_file(out / "table.md", table.to_markdown(rows, networks, caption))
    write_file(out / "table.csv", table.to_csv(rows))
    emit(result, out / "table.json", "compare", table=False)
    return result
