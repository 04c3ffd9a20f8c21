"""Measure a training step of `bs.train`, beside another checkout of this repository and beside DGL's GraphSAGE with its own loader.

    git worktree add ../before COMMIT; (cd ../before; python setup.py build_ext --inplace)
    python bench/run.py step --before ../before --python PYTHON_WITH_DGL --profile

Contestants train the same GraphSAGE on the same seeds with Adam and dropout, each in a process of its own, a round in turn. A
round is an epoch of `--steps` full mini-batches: bulks are sampled in one of its steps, so single steps would leave them out. Rounds before
the sixth step warm up. Checkouts must sample the same mini-batches, DGL as many edges within 2 %.

User and system seconds are those of all threads of the process. The share of the system is a gate: at most 3 %. On a busy machine read
`processor_ratios`: time that other programs take does not count there.
`--profile` adds a round under torch's profiler for the first configuration, with its time by group of operators.

The floor is what must move and be multiplied, at the rates of this run: the bytes of `bulksample.training.step_floor`, for layers that
aggregate before they multiply, as ours do on these graphs, over the bandwidth of a copy that no cache holds; and, with D_l destinations of
layer l of L and widths w_0 = f, h, ..., w_L, the multiply-adds of products

    sum over l of 2 D_l w_(l-1) w_l (2 + [l > 1])                   of own and mean rows: forward, gradient of W, of the input

over the rate of a product of 16,384 rows with an h x h matrix. Each is timed once a round, by torch in this process.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from graphs import GRAPHS, STEPS, folder, load, seeds
from harness import Numbers, check_edges, some_of, summary
from peers.contest import CLASSES, Worker, features_of, peer

from bulksample.errors import UsageError
from bulksample.training.machine_rates import copy_rate, product_rate
from bulksample.training.step_floor import RowPass, RowSum, bytes_of

ROOT = Path(__file__).resolve().parent.parent
WARM_STEPS = 5
COPIED, ROWS = 2**25, 2**14  # floats of a copy, and rows of a product


@dataclass(frozen=True, kw_only=True)
class StepOptions:
    before: Annotated[Path | None, "another checkout of this repository"] = None
    python: Annotated[str | None, "a Python that has DGL"] = None
    graphs: some_of(*GRAPHS, *STEPS) = ("products-500k", "rmat18", "reddit")
    hidden: Numbers = (256, 64)
    threads: Numbers = (1, 2)
    fanouts: Numbers = (15, 10, 5)
    batch_size: int = 1024
    features: Annotated[int, "numbers of a vertex"] = 100
    dropout: float = 0.5
    precision: Annotated[str, "of our products: fp32, or bf16 to be measured without DGL"] = "fp32"
    steps: Annotated[int, "steps of a round"] = 8
    rounds: int = 7
    profile: Annotated[bool, "also profile a round of the first configuration"] = False


def step(options: StepOptions) -> Iterator[dict[str, Any]]:
    if options.python and options.precision != "fp32":
        raise UsageError(
            f"DGL computes in fp32, so nothing else is compared with it; got precision {options.precision}: leave out --python"
        )
    found: list[dict[str, Any]] = []
    for graph in options.graphs:
        with tempfile.TemporaryDirectory() as scratch:
            task = task_of(graph, options, Path(scratch))
            sizes = sizes_of(task, options, Path(scratch))
            for hidden, threads in product(options.hidden, options.threads):
                file = written({**task, "hidden": hidden, "threads": threads}, Path(scratch))
                profiled = options.profile and not found
                found.append({"graph": graph, "hidden": hidden, "threads": threads, **measured(file, sizes, options, profiled)})
                print(line(found[-1]), file=sys.stderr, flush=True)
                yield {
                    "dropout": options.dropout,
                    "precision": options.precision,
                    "rounds": options.rounds,
                    "steps": options.steps,
                    "configurations": found,
                }


def task_of(graph: str, options: StepOptions, scratch: Path) -> dict[str, Any]:
    """Prepare what contestants read: the graph, its features, and the seeds of an epoch, int64, shape (steps, batch size)."""
    matrix = load(graph)
    batches = seeds(matrix, options.steps, options.batch_size)
    if len(batches[-1]) < options.batch_size:
        raise SystemExit(f"{graph} has too few vertices for {options.steps} mini-batches of {options.batch_size}: use fewer")
    np.save(scratch / "seeds.npy", np.stack(batches))
    return {
        "what": "step", "fanouts": list(options.fanouts), "batch_size": options.batch_size, "dropout": options.dropout,
        "precision": options.precision, "classes": CLASSES,
        "hidden": options.hidden[0], "threads": options.threads[0], "seeds": str(scratch / "seeds.npy"),
        "folder": str(folder(graph).absolute()), "features": str(features_of(folder(graph), matrix.shape[0], options.features).absolute()),
    }  # fmt: skip


def written(task: dict[str, Any], scratch: Path) -> Path:
    """Write a task for the processes of its contestants; return the file."""
    file = scratch / f"task-{task['hidden']}-{task['threads']}.json"
    file.write_text(json.dumps(task), encoding="utf-8")
    return file


def checkouts(options: StepOptions) -> dict[str, Path]:
    """Return this checkout, and the other one if there is one, by name."""
    return {"now": ROOT} | ({"before": options.before.resolve()} if options.before else {})


def trainer(name: str, checkout: Path, task: Path) -> Worker:
    """Start the trainer of a checkout, which trains an epoch for each round; exit unless the process imports that checkout's package."""
    script = Path(__file__).parent.resolve() / "peers" / "trainer.py"
    command = [sys.executable, "-P", str(script), str(task)]  # -P: PYTHONPATH alone decides, the checkout first
    worker = Worker(name, command, PYTHONPATH=f"{checkout}:{script.parent}")
    if worker.left_out:
        raise SystemExit(f"{checkout} takes no part: {worker.left_out}; its errors are above")
    if (package := Path(worker.first["package"])) != checkout / "bulksample":
        worker.end()
        raise SystemExit(f"{checkout} has no package bulksample: {package} would be measured in its place")
    worker.name = name
    return worker


def turn(worker: Worker, word: str = "go") -> dict[str, Any]:
    """Return the answer of a contestant; exit if its process has ended."""
    told = worker.round(word)
    if "left_out" in told:
        raise SystemExit(f"{worker.name}: {told['left_out']}; its errors are above")
    return told


def sizes_of(task: dict[str, Any], options: StepOptions, scratch: Path) -> dict[str, Any]:
    """Return the means of the mini-batches of an epoch by `peers.trainer.sizes`; exit if another checkout samples others."""
    found = {}
    for name, checkout in checkouts(options).items():
        worker = trainer(name, checkout, written(task, scratch))
        found[name] = turn(worker, "sizes")
        worker.end()
    digests = {name: sizes["digest"] for name, sizes in found.items()}
    if len(set(digests.values())) > 1:
        raise SystemExit(f"the checkouts draw other mini-batches, so their times mean nothing: {digests}")
    return found["now"]


def measured(file: Path, sizes: dict[str, Any], options: StepOptions, profiled: bool) -> dict[str, Any]:
    """Measure one configuration: figures of each contestant, ratios of its rounds to ours, the floor, and profiles if asked for."""
    task = json.loads(file.read_text(encoding="utf-8"))
    workers = [trainer(name, checkout, file) for name, checkout in checkouts(options).items()]
    own, left_out = len(workers), {}
    if options.python:
        dgl = peer(options.python, "dgl", file, task["threads"])
        workers += [] if dgl.left_out else [dgl]
        left_out = {"dgl": dgl.left_out} if dgl.left_out else {}
    try:
        turns, rates = play(workers, sizes, options, task)
        profiles = {worker.name: turn(worker, "profile")["profile"] for worker in workers[:own]} if profiled else {}
    finally:
        for worker in workers:
            worker.end()
    found = {name: figures(rounds) for name, rounds in turns.items()}
    ratios = {f"now / {name}" if name == "before" else f"{name} / now": (name, name == "before") for name in turns if name != "now"}
    widths = [options.features, *[task["hidden"]] * (len(options.fanouts) - 1), CLASSES]
    lower = floor(sizes, widths, {name: statistics.median(values) for name, values in rates.items()})
    median = found["now"]["milliseconds"]["median"]
    return {
        "results": found, "left_out": left_out,
        **{
            named: {what: ratio(turns["now"], turns[name], kind, inverse) for what, (name, inverse) in ratios.items()}
            for named, kind in (("ratios", "seconds"), ("processor_ratios", "processor"))
        },
        "minibatch": {name: sizes[name] for name in ("inputs", "destinations", "edges")},
        "floor": lower | {"rates": {name: summary(values) for name, values in rates.items()}},
        "now / floor": median / (lower["passes_ms"] + lower["products_ms"]),
        "profiles": {name: told | beside_products(told, found[name], lower) for name, told in profiles.items()},
    }  # fmt: skip


def play(
    workers: list[Worker], sizes: dict[str, Any], options: StepOptions, task: dict[str, Any]
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, list[float]]]:
    """Warm up, then let contestants take turns; return their turns, and rates of this machine once a round."""
    warm_rounds = -(-WARM_STEPS // options.steps)
    due = sum(sizes["edges"]) * options.steps
    turns: dict[str, list[dict[str, Any]]] = {worker.name: [] for worker in workers}
    rates: dict[str, list[float]] = {"gigabytes_per_second": [], "gigaflop_per_second": []}
    for number in range(warm_rounds + options.rounds):
        for worker in workers:
            told = turn(worker)
            if "edges" in told:
                check_edges(worker.name, told["edges"], due)
            if number >= warm_rounds:
                turns[worker.name].append(told)
        if number >= warm_rounds:
            torch.set_num_threads(task["threads"])
            rates["gigabytes_per_second"].append(copy_rate(COPIED))
            rates["gigaflop_per_second"].append(product_rate(task["hidden"], ROWS))
    return turns, rates


def figures(turns: list[dict[str, Any]]) -> dict[str, Any]:
    """Return milliseconds of a step over the rounds of a contestant, CPU seconds by kind, phases, and memory."""
    steps = turns[0]["minibatches"]
    user, system = (sum(one[kind] for one in turns) for kind in ("user", "system"))
    return {
        **{name: summary([1e3 * one[kind] / steps for one in turns]) for name, kind in (
            ("milliseconds", "seconds"), ("processor_milliseconds", "processor"),
        )},
        "user_milliseconds": 1e3 * user / steps / len(turns), "system_milliseconds": 1e3 * system / steps / len(turns),
        "system_share": system / (user + system),
        "phases": {part: statistics.median(1e3 * one["parts"][part] / steps for one in turns) for part in turns[0]["parts"]},
        "peak_mib": turns[-1]["peak_mib"], "rss_mib": turns[-1]["rss_mib"],
    }  # fmt: skip


def ratio(now: list[dict[str, Any]], other: list[dict[str, Any]], kind: str, inverse: bool) -> dict[str, float]:
    """Return the spread over rounds of other / now, or of now / other: rounds that were played one after the other."""
    pairs = [(one[kind], two[kind]) for one, two in zip(now, other, strict=True)]
    return summary([ours / theirs if inverse else theirs / ours for ours, theirs in pairs])


def floor(sizes: dict[str, Any], widths: list[int], rates: dict[str, float]) -> dict[str, Any]:
    """Return bytes of passes by kind, multiply-adds of products, and the milliseconds of both; see the top of this module."""
    d, e = sizes["destinations"], sizes["edges"]  # of layer l of the formula at l - 1
    layers = enumerate(zip(pairwise([sizes["inputs"], *d]), e, widths[:-1], strict=True))
    sums = [RowSum(sources, rows, edges, width, gradient=i > 0) for i, ((sources, rows), edges, width) in layers]
    passes = [RowPass(rows, width) for rows, width in zip(d[:-1], widths[1:-1], strict=True)]
    moved = bytes_of(sums, passes, sum(2 * a * b + b for a, b in pairwise(widths)))
    multiplied = sum(2 * rows * a * b * (2 + (i > 0)) for i, (rows, (a, b)) in enumerate(zip(d, pairwise(widths), strict=True)))
    return {
        "bytes": moved, "multiply_adds": multiplied, "passes_ms": sum(moved.values()) / rates["gigabytes_per_second"] / 1e6,
        "products_ms": 2 * multiplied / rates["gigaflop_per_second"] / 1e6,
    }  # fmt: skip


def beside_products(told: dict[str, Any], found: dict[str, Any], lower: dict[str, Any]) -> dict[str, float]:
    """Return the milliseconds of a step beside its matrix products, by a profile, and their ratio to the floor of passes."""
    rest = (1 - told["shares"].get("matrix products", 0.0)) * found["milliseconds"]["median"]
    return {"beside_products_ms": rest, "beside_products / passes": rest / lower["passes_ms"]}


def line(found: dict[str, Any]) -> str:
    """Describe a configuration in a line."""
    told = [f"{name} {one['milliseconds']['median']:.0f} ms (system {one['system_share']:.1%})" for name, one in found["results"].items()]
    ratios = [f"{name} {one['median']:.2f}" for name, one in found["ratios"].items()]
    lower = f"floor {found['floor']['passes_ms']:.0f} + {found['floor']['products_ms']:.0f} ms"
    return f"{found['graph']}, h {found['hidden']}, {found['threads']} threads: {', '.join([*told, *ratios, lower])}"
