"""Run one of the experiments, print its result, and keep it.

    python bench/run.py                              list the experiments
    python bench/run.py NAME --help                  what it measures, and its options
    python bench/run.py NAME OPTIONS                 print the result as JSON
    python bench/run.py NAME OPTIONS --json FILE     write it to FILE instead, also after each part of a long experiment
    python bench/run.py NAME OPTIONS --keep PART     replace a part of bench/results/THEME/latest.json by it

An experiment is a function that returns its result, or yields what it has found so far. Its options are its parameters, or the fields of
its dataclass; lists are joined by commas. One with a parameter `kept` adds to what FILE has from an earlier call. `module:function WORDS`
calls any function, for experiments of several processes.
"""

from __future__ import annotations

import inspect
import json
import shlex
import sys
from collections.abc import Callable
from copy import copy
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

import keep
import typer
from harness import machine

from bulksample.errors import EXIT_BAD_DATA, EXIT_BAD_USE, BackendUnavailable, DataError, UsageError

RUNNER = "python bench/run.py"
EXIT_CODES = {UsageError: EXIT_BAD_USE, BackendUnavailable: EXIT_BAD_USE, DataError: EXIT_BAD_DATA}


class Experiment(NamedTuple):
    """A function, by its module and name; the theme of its results, and what it measures."""

    where: str
    theme: str
    what: str


# fmt: off
EXPERIMENTS = {
    "sampling": Experiment("bench_sampling:sampling", "sampling", "sampled edges per second, beside torch_geometric and DGL"),
    "before": Experiment("bench_before:before", "sampling", "an epoch of sampling, beside another checkout of this repository"),
    "peers": Experiment("peers.contest:peers", "peers", "sampling, loading and training steps, beside DGL, GraphBolt, torch_geometric"),
    "step": Experiment("bench_step:step", "step", "a training step of `bs.train`, beside another checkout and DGL, and its floor"),
    "ladies": Experiment("bench_ladies:ladies", "ladies", "LADIES and FastGCN beside a plain scipy formulation"),
    "laws": Experiment("bench_laws:laws", "laws", "draws without and with replacement, by weight, LABOR"),
    "audit-laws": Experiment("audit_laws:audit_laws", "laws", "every law against enumerated outcomes, corrected for the number of tests"),
    "growth": Experiment("bench_growth:growth", "growth", "cost of sampling by edges, mini-batches per call, fanout and skew"),
    "memory": Experiment("bench_memory:memory", "memory", "peak memory of a loader beside the prediction of bulk_size=\"auto\""),
    "spmm": Experiment("bench_spmm:spmm", "spmm", "the sparse-times-dense product, beside torch's"),
    "links": Experiment("bench_links:links", "links", "the link decoder and the splitting of edges"),
    "relations": Experiment("bench_relations:relations", "relational", "sampling on relations and in time, beside DGL"),
    "relational-epoch": Experiment("bench_relational_epoch:relational_epoch", "relational", "epochs of the Formula 1 example"),
    "relational-ranks": Experiment("bench_relational_ranks:relational_ranks", "relational", "Formula 1 on process grids beside one rank"),
    "answer-rooms": Experiment("bench_answer_rooms:answer_rooms", "relational", "bytes of answers in rooms of known lengths"),
    "years": Experiment("bench_years:years", "relational", "fields of papers predicted from the past, and with a leak of the future"),
    "interop": Experiment("interop:interop", "interop", "a script of torch_geometric or DGL with its own loader and with ours"),
    "pyg-loader-tests": Experiment("pyg_loader_tests:pyg_loader_tests", "interop", "torch_geometric's own loader tests with our loaders"),
    "loader-alone": Experiment("bench_loader:loader_alone", "loader", "the public loader beside the trainer, in one process"),
    "loader-input": Experiment("bench_loader:loader_input", "loader", "`batch.x` and a mean over it beside `batch.own_and_mean()`"),
    "loader-start": Experiment("bench_loader:loader_start", "loader", "the start of an epoch of many seeds"),
    "loader-ranks": Experiment("bench_loader:loader_ranks", "loader", "DDP over the public loader beside `bulksample train`"),
    "accuracy": Experiment("bench_accuracy:accuracy", "accuracy", "test accuracy of samplers, the full batch and torch_geometric"),
    "pyg-accuracy": Experiment("pyg_accuracy:pyg_accuracy", "accuracy", "one training of torch_geometric's GraphSAGE, for `accuracy`"),
    "exchange": Experiment("bench_exchange:exchange", "exchange", "bytes of sampling a partitioned graph, by policy and grid"),
    "exchange-bulk": Experiment("bench_exchange_bulk:exchange_bulk", "exchange", "bytes of `rows` and `owner` as a bulk grows"),
    "grid": Experiment("sweep_grid:grid", "grid", "bytes, seconds and memory of real ranks on every process grid"),
    "grid-order": Experiment("bench_grid_order:grid_order", "scale", "both mappings of a grid to machines, over shaped links"),
    "slow-network": Experiment("slow_network:slow_network", "slow_network", "sampling and training over shaped links"),
    "slow-compare": Experiment("slow_compare:slow_compare", "tma_network", "`bulksample compare` over shaped links, seconds to a score"),
    "plan": Experiment("bench_plan:plan", "scale", "predictions of `bulksample plan` beside runs of 4 ranks"),
    "parts": Experiment("bench_parts:parts", "scale", "a large graph from import to 8 ranks: seconds, memory, bytes read"),
    "messages": Experiment("bench_messages:messages", "scale", "messages and processor time of hops on many ranks"),
    "locality": Experiment("bench_locality:locality", "scale", "rows of other ranks, caches and accuracy with seeds near their ranks"),
    "scaling": Experiment("scaling:scaling", "scaling", "predicted epochs on 4 to 1024 devices beside published figures"),
    "adaqp": Experiment("bench_adaqp:adaqp", "adaqp", "accuracy and bytes of rounded messages"),
    "retexo": Experiment("bench_retexo:retexo", "retexo", "accuracy and bytes of training layer by layer"),
    "grappa": Experiment("bench_grappa:grappa", "grappa", "accuracy of parts that exchange only gradients"),
    "grappa-gradient": Experiment("bench_grappa_gradient:grappa_gradient", "grappa", "bias and spread of Grappa's gradients"),
    "tma": Experiment("bench_tma:tma", "tma", "accuracy of averaged models, also with a lost part"),
    "tma-lost": Experiment("bench_tma_lost:tma_lost", "tma", "where a lost part costs accuracy"),
    "serving": Experiment("bench_serving:serving", "serving", "rounds of a server that strangers visit"),
    "updates": Experiment("bench_updates:updates", "serving", "how far honest trainers move between averages"),
    "gpu": Experiment("gpu.benchmark:gpu", "gpu", "digests, sampling, copies, training and peers on this machine's GPU"),
    "gpu-resources": Experiment("gpu.resources:gpu_resources", "gpu", "registers, shared memory and spilled bytes of every CUDA kernel"),
    "enqueue": Experiment("bench_enqueue:enqueue", "gpu", "the host's time for a bulk on a GPU, with a driver that does nothing"),
}
TOOLS = {
    "results": Experiment("keep:results", "", "list the kept parts of a theme, print one, or replace one by a file"),
    "claims": Experiment("claims:write_claims", "", "write the figures of docs/claims.md from the kept results"),
    "compare-tables": Experiment("compare_tables:write_tables", "", "write the tables of `compare`, RETEXO and docs/methods/index.md"),
    "plot-compare": Experiment("plot_compare:plot_compare", "", "draw test accuracy against bytes from the kept comparisons"),
}
# fmt: on


def main() -> None:
    name, words = (sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else ("", [])
    if ":" in name:
        function_of(name)(*words)
    elif name in EXPERIMENTS | TOOLS:
        run(name, words)
    elif name in ("", "--help"):
        show()
    else:
        refuse(f"there is no experiment {name!r}; `{RUNNER}` lists them")


def function_of(where: str) -> Callable[..., Any]:
    """Import a function, named as module:function."""
    module, _, name = where.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), name)
    return found


def show() -> None:
    """Print what each experiment measures, and the page of its figures."""
    print(__doc__)
    for table in (EXPERIMENTS, TOOLS):
        for name, one in table.items():
            print(f"{name:17} {one.what}" + (f" [{one.theme}]" if one.theme else ""))
        print()
    print("[theme]: the figures stand in bench/results/THEME/README.md.")


def run(name: str, words: list[str]) -> None:
    """Call an experiment with the options that the words give, and exit."""
    known = (EXPERIMENTS | TOOLS)[name]
    function = function_of(known.where)
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    text = inspect.getdoc(function) or inspect.getdoc(inspect.getmodule(function)) or ""
    keeps = [] if name in TOOLS else ["json", "keep"]
    app.command(help="\b\n" + text.replace("\n\n", "\n\n\b\n"))(command(function, known.theme, keeps, words))
    try:
        app(words, prog_name=f"{RUNNER} {name}")
    except tuple(EXIT_CODES) as error:
        refuse(str(error), name, next(code for kind, code in EXIT_CODES.items() if isinstance(error, kind)))


def command(function: Callable[..., Any], theme: str, keeps: list[str], words: list[str]) -> Callable[..., None]:
    """Return the function as a command: with options for its result, and smaller sizes if the words ask for them."""
    found = inspect.signature(function, eval_str=True).parameters
    options = next((one.annotation for one in found.values() if is_dataclass(one.annotation)), None)
    if options:
        hints = get_type_hints(options, include_extras=True)
        found = {name: one.replace(annotation=hints[name]) for name, one in inspect.signature(options).parameters.items()}
    small = getattr(function, "quick", None)
    chosen = small if small and "--quick" in words else {}
    parameters = {name: _option(one.replace(default=chosen.get(name, one.default))) for name, one in found.items() if name != "kept"}
    added: dict[str, tuple[Any, Any]] = {
        "json": (Annotated[Path | None, typer.Option(metavar="FILE", help="file for the result")], None),
        "keep": (Annotated[str | None, typer.Option(metavar="PART", help=f"part of bench/results/{theme}/latest.json")], None),
        "quick": (Annotated[bool, typer.Option("--quick", help=f"smaller sizes: {small}")], False),
    }

    def called(**given: Any) -> None:
        path, part, _ = (given.pop(name, None) for name in added)
        if "kept" in found:
            given["kept"] = json.loads(path.read_text()) if path and path.exists() else {}
        save(function(options(**given)) if options else function(**given), path, (theme, part) if part else None)

    for name in [*keeps, *(["quick"] if small else [])]:
        parameters[name] = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=added[name][1], annotation=added[name][0])
    called.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    return called


def _option(parameter: inspect.Parameter) -> inspect.Parameter:
    """Turn the text beside a type, `Annotated[int, "..."]`, into the help of an option or of an argument."""
    kind, *about = get_args(parameter.annotation) if hasattr(parameter.annotation, "__metadata__") else (parameter.annotation,)
    help = next((one for one in about if isinstance(one, str)), None)
    known = next((one for one in about if not isinstance(one, str)), None)
    flag = [f"--{parameter.name.replace('_', '-')}"] if kind is bool else []  # without a --no- of its own
    made = copy(known) or (typer.Argument() if parameter.default is parameter.empty else typer.Option(*flag))
    made.help = help or made.help
    return parameter.replace(annotation=Annotated[kind, made], kind=parameter.KEYWORD_ONLY)


def save(found: Any, path: Path | None, part: tuple[str, str] | None) -> None:
    """Write the result, with the machine as it was before, or every result that is yielded; print the last if there is no file."""
    before, last = {"machine": machine()}, None
    for result in [found] if found is None or isinstance(found, dict) else found:
        last = json.loads(json.dumps(before | result | before, default=str)) if result else None
        if path and last:
            path.write_text(keep.layout(last) + "\n")
    if last and not path:
        print(keep.layout(last))
    if last and part:
        words = [word for word in sys.argv[1:] if word not in ("--keep", part[1])]
        keep.add(*part, last, shlex.join([*RUNNER.split(), *words]))


def refuse(reason: str, name: str = "bench", code: int = EXIT_BAD_USE) -> None:
    """Print the reason and exit."""
    print(f"{name}: {reason}", file=sys.stderr)
    raise SystemExit(code)


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[1] / "tests"))  # graphs, oracles
    main()
