"""Compare RETEXO with full-graph training: bytes, accuracy, seconds, and the loss of layer-by-layer training.

FOLDER has the .npz files. Bytes are those of a whole run without evaluation, which the formulas do not cover.

- bytes: `full`, strong and naive, over `retexo`, for 200 rounds. Two shorter runs are measured, since every round sends the same; the
  formulas use the measured halo rows. Ranks are threads, which count bytes as processes do. "published" is the formula of the published
  baseline: every layer aggregates at the width of its input, and the input travels once.
- accuracy: equal width, layers, seeds, splits and rounds, on one rank. On cora and citeseer each model and method uses the dropout and
  weight decay, of six, with the best mean validation accuracy over three seeds that are not scored. "normed" is `full` with the layer
  norm of stages: the network that stages build, trained end to end.
- weak: a block model with weak features, where stages lose accuracy, and the gain and bytes of rounds end to end. Scores are those of
  one rank.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from harness import Data, Names, Numbers, some_of, spread

from bulksample import CSR, Graph
from bulksample.data import store
from bulksample.data.dcsbm import BlockModel, dcsbm
from bulksample.distributed.comm.base import Comm
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.run import train as trained

# name: (graph, model, hidden, layers, rounds, expected ratio for 200 rounds on 4 random parts, if there is one)
BYTES = {
    "cora GCN-128": ("cora", "gcn", 128, 2, 200, 2.0),
    "citeseer GCN-128": ("citeseer", "gcn", 128, 2, 200, 1.4),
    "sbm SAGE-64": ("sbm", "sage", 64, 2, 200, 75),
    "sbm SAGE-64, 3 layers": ("sbm", "sage", 64, 3, 200, 86),
    "facebook-pagepage 128-d GCN-256": ("facebook-pagepage-128", "gcn", 256, 2, 200, 100),
    "facebook-pagepage 4714-d GCN-256": ("facebook-pagepage", "gcn", 256, 2, 200, 100),
}
ACCURACY = {
    "cora": "--hidden 128 --epochs 200 --lr 0.01 --feature-norm l1",
    "citeseer": "--hidden 128 --epochs 200 --lr 0.01 --feature-norm l1",
    "amazon-computers": "--hidden 128 --epochs 150 --lr 0.01 --feature-norm l2",
    "facebook-pagepage": "--hidden 128 --epochs 80 --lr 0.01 --feature-norm l2",
}
# With few training vertices regularization decides, and stages need other amounts of it than whole networks.
_HELD_BACK = tuple(
    f"--dropout {share} --input-dropout {share} --weight-decay {decay}" for share, decay in product((0.5, 0.8), (0.0005, 0.005, 0.02))
)
CHOICES = {
    "cora": _HELD_BACK, "citeseer": _HELD_BACK, "amazon-computers": ("--dropout 0.5 --weight-decay 0.0",),
    "facebook-pagepage": ("--dropout 0.5 --weight-decay 0.00005",),
}  # fmt: skip
ARMS = {"full": "--method full", "retexo": "--method retexo", "normed": "--method full --layer-norm"}
_TRIALS = (100, 101, 102)  # seeds that choose a setting; they are not scored
REFINEMENTS = (10, 40)
MEASURED = (4, 12)  # measured rounds (per stage); bytes grow linearly with rounds


def alone(directory: Path, words: str, seed: int, comm: Comm | None = None) -> dict[str, Any]:
    """Return the report of one run, on one rank or on several threads; words are those of `bulksample train`."""
    options: dict[str, Any] = {}
    for word in words.split():
        if word.startswith("--"):
            key = word[2:].replace("-", "_")
            options[key] = True
        else:
            options[key] = int(word) if word.isdigit() else word
    report = trained(directory, comm, threads=1, seed=seed, **options)
    if report["stopped"]:
        raise SystemExit("a signal has ended a run early; its figures would count as those of a whole one")
    return report


def training_bytes(run: dict[str, Any]) -> dict[str, int]:
    """Return the bytes of a run without evaluation: of the kinds in the formulas, and of all kinds."""
    kinds = {kind: run["bytes_sent"][kind] for kind in ("features", "activations", "gradients", "model")}
    beside = run["phase_bytes"]["evaluate"]
    if run["method"] == "full":  # evaluation exchanges rows
        kinds["activations"] -= beside
    return {**kinds, "formula_kinds": sum(kinds.values()), "everything": run["bytes_sent"]["total"] - beside}


# ---- bytes


def counted(directory: Path, words: str, rounds: int, ranks: int) -> tuple[dict[str, Any], dict[str, float]]:
    """Return a short run and the bytes of the given number of rounds (per stage); refinement rounds are not scaled."""
    a, b = MEASURED
    asked = [f"{words} --partition random --eval-every 1000 --epochs {count}" for count in MEASURED]
    runs = [on_threads(ranks, lambda comm, one=one: alone(directory, one, 0, comm), timeout=600)[0] for one in asked]
    few, more = (training_bytes(run) for run in runs)
    return runs[1], {kind: few[kind] + (more[kind] - few[kind]) * (rounds - a) / (b - a) for kind in few}


def foreseen(halo: int, features_once: int, widths: list[int], sparse: bool, rounds: int, ranks: int, parameters: int) -> dict[str, int]:
    """Predict the bytes of full-graph training, without control and topology.

    In the naive form the input also travels in every round: dense input as it is, sparse input after its transformation and with gradients.
    """
    reduced = 4 * rounds * 2 * (ranks - 1) * (parameters + 3) + 4 * (ranks - 1) * parameters
    hidden = sum(widths[1:-1])
    narrow = sum(min(a, b) for a, b in pairwise(widths[1:]))
    per_round = {"strong": 2 * narrow, "published": 2 * hidden, "naive": 2 * hidden + (2 * widths[1] if sparse else widths[0])}
    return {form: features_once + 4 * rounds * halo * width + reduced for form, width in per_round.items()}


def byte_ratios(places: dict[str, Path], ranks: int) -> Iterator[dict[str, Any]]:
    for name, asked in BYTES.items():
        if asked[0] in places:
            yield byte_ratio(name, places[asked[0]], asked, ranks)


def byte_ratio(name: str, directory: Path, asked: tuple[str, str, int, int, int, float], ranks: int) -> dict[str, Any]:
    """Measure one row of the table of bytes."""
    _, model, hidden, layers, rounds, in_table = asked
    words = f"--model {model} --hidden {hidden} --layers {layers} --dropout 0"
    methods = {"retexo": "--method retexo", "strong": "--method full", "naive": "--method full --form naive"}
    runs, sent = {}, {}
    for method, extra in methods.items():
        runs[method], sent[method] = counted(directory, f"{words} {extra}", rounds, ranks)
    greedy = runs["retexo"]
    graph = store.load(directory)
    widths = [graph.num_features, *[hidden] * (layers - 1), graph.num_classes]
    halo, parameters = greedy["halo_rows_of_all"], runs["strong"]["parameters"]
    once = greedy["predicted_bytes"]["features"]
    formula = foreseen(halo, once, widths, isinstance(graph.features, CSR), rounds, ranks, parameters)
    stages = greedy["predicted_bytes"]
    v = sum(stages.values()) + stages["gradients"] // MEASURED[1] * (rounds - MEASURED[1])
    row = {
        "name": name,
        "ranks": ranks,
        "rounds": rounds,
        "halo_rows": halo,
        "in_table": in_table,
        "retexo_bytes": sent["retexo"],
        "retexo_formula": v,
        "gradient_share": sent["retexo"]["gradients"] / sent["retexo"]["everything"],
        "published_ratio_formula": formula["published"] / v,
    }
    for form in ("strong", "naive"):
        ratios = {kinds: sent[form][kinds] / sent["retexo"][kinds] for kinds in ("formula_kinds", "everything")}
        row[form] = {"bytes": sent[form], "formula": formula[form], "ratio": ratios, "ratio_formula": formula[form] / v}
    print(
        f"{name:32}" + "  ".join(
            f"{form} {row[form]['ratio']['everything']:.2f} (without control {row[form]['ratio']['formula_kinds']:.2f}, "
            f"formula {row[form]['ratio_formula']:.2f})" for form in ("strong", "naive")
        ) + "  "
        f"published form {row['published_ratio_formula']:6.2f}, table {in_table}  "
        f"gradients {100 * row['gradient_share']:.0f} %", flush=True,
    )  # fmt: skip
    return row


# ---- accuracy


def accuracies(
    rows: list[dict[str, Any]], places: dict[str, Path], seeds: Sequence[int], models: Sequence[str], arms: Sequence[str]
) -> Iterator[None]:
    """Run the missing rows; yield after every run."""
    for graph, model in product([name for name in ACCURACY if name in places], models):
        row = next((row for row in rows if (row["graph"], row["model"]) == (graph, model)), None)
        if row is None:
            rows.append(row := {"graph": graph, "model": model})
        for arm in arms:
            words = f"{ARMS[arm]} --model {model} --layers 2 --eval-every 2 {ACCURACY[graph]}"
            found = row.setdefault(arm, {"trials": {}, "scores": {}, "stages": {}})
            yield from accuracy(found, places[graph], words, CHOICES[graph], seeds)
        for key, other in (("difference", "full"), ("difference_to_normed", "normed")):
            if other in row and "retexo" in row:
                row[f"{key}s"] = differences(row["retexo"]["scores"], row[other]["scores"])
                row[key] = with_error(row[f"{key}s"])
        yield
        print(f"{graph:18} {model:5} " + "  ".join(f"{key} {row[key]}" for key in ("difference", *arms) if key in row), flush=True)


def differences(scores: dict[str, float], others: dict[str, float]) -> dict[str, float]:
    """Return differences by seed, for seeds that both rows have."""
    return {seed: scores[seed] - others[seed] for seed in others if seed in scores}


def accuracy(arm: dict[str, Any], directory: Path, words: str, choices: tuple[str, ...], seeds: Sequence[int]) -> Iterator[None]:
    """Choose a setting by validation on separate seeds, and score it; skip finished runs."""
    for choice, seed in product(choices if len(choices) > 1 else (), map(str, _TRIALS)):
        trials = arm["trials"].setdefault(choice, {})
        if seed not in trials:
            trials[seed] = 100 * alone(directory, f"{words} {choice}", int(seed))["val_accuracy"]
            yield
    chosen = max(choices, key=lambda choice: statistics.mean(arm["trials"].get(choice, {"": 0}).values()))
    arm["command"] = f"bulksample train {directory.name} {words} {chosen}"
    for seed in map(str, seeds):
        if seed not in arm["scores"]:
            run = alone(directory, f"{words} {chosen}", int(seed))
            arm["scores"][seed] = 100 * run["test_accuracy"]
            arm["stages"][seed] = [100 * stage["test_accuracy"] for stage in run.get("stages", [])]
            arm.setdefault("seconds_per_round", {})[seed] = run["seconds_per_epoch"]
            yield
    arm["accuracy"] = with_error(arm["scores"])


def with_error(values: dict[str, float]) -> dict[str, float]:
    """Return mean, standard deviation, and standard error of the mean."""
    found = spread(values.values())
    return {**found, "error": found["std"] / len(values) ** 0.5, "seeds": len(values)}


# ---- weak features


def weak_features(places: dict[str, Path], seeds: list[int], models: list[str], ranks: int) -> Iterator[dict[str, Any]]:
    """Measure accuracy and bytes of end-to-end training, with and without layer norm, and of stages with a few refinement rounds."""
    contestants = {"end to end": "--method full", "end to end, layer norm": "--method full --layer-norm", "stages": "--method retexo"}
    contestants |= {f"stages + {k} rounds": f"--method retexo --refine {k}" for k in REFINEMENTS}
    for model in models:
        for layers in (2, 3):
            words = f"--model {model} --hidden 64 --layers {layers} --epochs 100 --lr 0.01 --dropout 0.3 --weight-decay 5e-4"
            row: dict[str, Any] = {"model": model, "layers": layers}
            for name, method in contestants.items():
                runs = [alone(places["weak"], f"{words} {method}", seed) for seed in seeds]
                scores = [100 * run["test_accuracy"] for run in runs]
                row[name] = {
                    **spread(scores),
                    "scores": scores,
                    "bytes": counted(places["weak"], f"{words} {method}", 100, ranks)[1]["everything"],
                }
            told = "  ".join(f"{name} {row[name]['mean']:.1f} ({row[name]['bytes'] / 2**20:.1f} MiB)" for name in contestants)
            print(f"weak {model:5} L={layers}  {told}", flush=True)
            yield row


def weak_graph(n: int = 3000, edges: int = 24_000, homophily: float = 0.6, noise: float = 0.9, width: int = 32, classes: int = 5) -> Graph:
    """Generate a block model of equal classes; features are a random unit vector per class and normal noise."""
    rng = np.random.default_rng(7)
    labels = rng.integers(0, classes, n)
    members = [np.flatnonzero(labels == c) for c in range(classes)]
    u = rng.integers(0, n, edges // 2)
    inside = rng.random(len(u)) < homophily
    v = np.where(inside, [rng.choice(members[labels[a]]) for a in u], rng.integers(0, n, len(u)))
    apart = u != v
    u, v = u[apart], v[apart]
    pairs = np.unique(np.stack([np.concatenate([u, v]), np.concatenate([v, u])], 1), axis=0)
    directions = rng.standard_normal((classes, width))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    x = (directions[labels] + noise * rng.standard_normal((n, width))).astype(np.float32)
    place = rng.permutation(n)
    masks = {"train": place < n // 5, "val": (place >= n // 5) & (place < 2 * n // 5), "test": place >= 2 * n // 5}
    return Graph(CSR.from_edges(pairs[:, 0], pairs[:, 1], (n, n)), 1.0, x, labels.astype(np.int64), classes, masks, {}, "weak").validate()


def projected(graph: Graph, width: int) -> Graph:
    """Multiply the features of a graph by a random matrix, to the width of reduced features in other loaders."""
    matrix = np.random.default_rng(7).standard_normal((graph.num_features, width)) / np.sqrt(width)
    x = (graph.features.to_scipy() @ matrix).astype(np.float32)
    return replace(graph, features=x, name=f"{graph.name}-{width}").validate()


# ---- the whole


def prepared(data: Path, work: Path, parts: list[str], only: set[str]) -> dict[str, Path]:
    """Return the required stores by name; create missing ones."""
    of_part = {"bytes": {asked[0] for asked in BYTES.values()}, "accuracy": set(ACCURACY), "weak": {"weak"}}
    places = {}
    for name in sorted(set().union(*(of_part[part] for part in parts)) & only):
        places[name] = work / name
        if (places[name] / "manifest.json").exists():
            continue
        if name == "sbm":
            model = BlockModel(classes=10, features=64, degree_spread=0, communities=1, train=0.5, val=0.2, popularity=None)
            store.save(dcsbm(20_000, 10, model, seed=1), places[name])
        elif name == "weak":
            store.save(weak_graph(), places[name])
        elif name == "facebook-pagepage-128":
            store.save(projected(store.load(work / "facebook-pagepage"), 128), places[name])
        else:
            command = [sys.executable, "-m", "bulksample", "data", "import", "npz", str(data / f"{name}.npz"), "-o", str(places[name])]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return places


def retexo(
    data: Data, work: Annotated[Path | None, "folder for the stores; default: a temporary folder"] = None,
    parts: some_of("bytes", "accuracy", "weak") = ("bytes", "accuracy", "weak"),
    graphs: Names = (*dict.fromkeys([*ACCURACY, "facebook-pagepage-128", "sbm", "weak"]),), models: Names = ("gcn", "sage"),
    arms: some_of(*ARMS) = tuple(ARMS), ranks: int = 4, seeds: Numbers = (0, 1, 2), kept: dict[str, Any] | None = None,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    found = {**(kept or {}), "ranks": ranks}
    with tempfile.TemporaryDirectory() as folder:
        places = prepared(data, work or Path(folder), parts, set(graphs))
        if "accuracy" in parts:
            for _ in accuracies(found.setdefault("accuracy", []), places, seeds, models, arms):
                yield found
        rows = {"bytes": byte_ratios(places, ranks), "weak": weak_features(places, seeds, models, ranks)}
        for part in [part for part in parts if part in rows]:
            found[part] = []
            for row in rows[part]:
                found[part].append(row)
                yield found
