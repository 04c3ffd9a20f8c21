"""The runs of a comparison as one table: JSON for programs, CSV for spreadsheets, Markdown for people.

Every number is a mean over the reports of all seeds; scores and seconds also have their standard deviation. Bytes and messages are those
of training, summed over ranks, set-up included and evaluation left out.
"""

from __future__ import annotations

import csv
import io
import re
import statistics
from collections.abc import Iterable, Iterator
from statistics import fmean
from typing import Any

from scipy.special import stdtrit

from ..config.metrics import percent, titled
from ..distributed.comm.base import KINDS
from ..printable import printable
from .compare import ContestantRun
from .network import NetworkModel

_ENOUGH_SEEDS = 5  # for a difference between methods
SPLITS = ("test", "val", "train")


def rows(runs: list[ContestantRun], networks: list[NetworkModel]) -> list[dict[str, Any]]:
    """Return one object for each method, in the order of the runs. A method that failed has only the reason.

    `difference` is the score minus that of the first method, paired by seed, if both are the same metric of the same split.
    """
    labels = dict.fromkeys(run.label for run in runs)
    table = [_row(label, [run for run in runs if run.label == label], networks) for label in labels]
    for row in table[1:]:
        if not row["failed"] and not table[0]["failed"]:
            alike = (row["split"], row["metric"]) == (table[0]["split"], table[0]["metric"])
            scores, other = (_scores(runs, one) for one in (row, table[0]))
            row["difference"] = paired(scores, other) if alike else None
    return table


def _scores(runs: list[ContestantRun], row: dict[str, Any]) -> dict[int, float]:
    """Return the scores of a method by seed, without those that are undefined."""
    if not row["split"]:
        return {}
    reports = ((run.seed, run.report) for run in runs if run.label == row["method"])
    scores = {seed: report.get(f"{row['split']}_{row['metric']}") for seed, report in reports if report}
    return {seed: score for seed, score in scores.items() if score is not None}


def paired(scores: dict[int, float], other: dict[int, float]) -> dict[str, Any] | None:
    """Return the mean of the differences by seed and its 95 % interval by Student's t; None without two seeds that both have."""
    differences = [scores[seed] - other[seed] for seed in scores if seed in other]
    if len(differences) < 2:
        return None
    mean, n = fmean(differences), len(differences)
    half = float(stdtrit(n - 1, 0.975)) * statistics.stdev(differences) / n**0.5
    return {"mean": mean, "low": mean - half, "high": mean + half, "seeds": n}


def _row(label: str, runs: list[ContestantRun], networks: list[NetworkModel]) -> dict[str, Any]:
    failed = next((run for run in runs if run.failure), None)
    if failed is not None:
        return {"method": label, "failed": f"seed {failed.seed}: {failed.failure}"}
    reports = [run.report for run in runs if run.report]
    split = scored_split(reports[0])
    metric = reports[0]["metric"]
    return {
        "method": label, "failed": None, "runs": len(reports), "split": split, "metric": metric,
        "score": spread(report[f"{split}_{metric}"] for report in reports) if split else None,
        "epochs": fmean(report["epochs_in_this_run"] for report in reports),
        "steps": fmean(report["steps"] for report in reports) if all("steps" in report for report in reports) else None,
        "trainers": reports[0].get("trainers", reports[0].get("ranks")),
        "norm": norm_of(reports[0]),
        "bytes": {kind: fmean(report["training_bytes"][kind] for report in reports) for kind in ("total", *KINDS)},
        "messages": {kind: fmean(report["training_messages"][kind] for report in reports) for kind in ("total", *KINDS)},
        "busiest_rank": {what: fmean(report["busiest_rank"][what] for report in reports) for what in ("bytes", "messages")},
        "compute_seconds": spread(report["compute_seconds"] for report in reports),
        "seconds_per_epoch": spread(report["seconds_per_epoch"] for report in reports),
        "networks": {
            network.label: {
                "seconds": spread(network.seconds(report) for report in reports),
                "seconds_per_epoch": spread(network.seconds(report) / max(1, report["epochs_in_this_run"]) for report in reports),
            }
            for network in networks
        },
    }  # fmt: skip


def norm_of(report: dict[str, Any]) -> str | None:
    """Return the norm after hidden layers: layer, batch or none; None for a model of the user's own."""
    config = report.get("config", {})
    if not config or ":" in config["model"]:
        return None
    layer = config["layer_norm"] if config["layer_norm"] is not None else config["method"] == "retexo"
    return "layer" if layer else "batch" if config["batch_norm"] else "none"


def scored_split(report: dict[str, Any]) -> str | None:
    """Return the split whose score counts: test, or val, or train, the first that the report scores."""
    return next((split for split in SPLITS if report.get(f"{split}_{report['metric']}") is not None), None)


def spread(values: Iterable[float | None]) -> dict[str, Any]:
    """Return the mean, the standard deviation (None for a single value) and the values; those that are None are left out."""
    numbers = [value for value in values if value is not None]
    return {"mean": fmean(numbers), "std": statistics.stdev(numbers) if len(numbers) > 1 else None, "values": numbers}


def to_csv(table: list[dict[str, Any]]) -> str:
    """Return CSV with a line for each row. Nested numbers become columns such as ``bytes.total``; the values behind a mean are left out."""
    flat = [dict(_flat("", row)) for row in table]
    names = dict.fromkeys(name for row in flat for name in row)
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(names), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return stream.getvalue()


def _flat(name: str, value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key != "values":
                yield from _flat(f"{name}.{key}" if name else key, inner)
    else:
        yield name, "" if value is None else value


def to_markdown(table: list[dict[str, Any]], networks: list[NetworkModel], caption: str) -> str:
    """Return a Markdown table with a column for each kind of bytes that a method sent, and notes on the columns under it."""
    lines = markdown(*head_and_body(table, [network.label for network in networks]))
    return "\n".join([caption, "", *lines, "", *(f"- {note}" for note in _notes(table, networks))]) + "\n"


def head_and_body(table: list[dict[str, Any]], networks: list[str]) -> tuple[list[str], list[list[str]]]:
    """Return the names of the columns, and a row of text for each method; the row of a failed method holds only the reason."""
    fine = [row for row in table if not row["failed"]]
    sent = [kind for kind in KINDS if any(row["bytes"][kind] for row in fine)]
    scored = fine[0] if fine and fine[0].get("split") else None
    score = titled(f"{scored['split']} {scored['metric']}", scored["metric"]) if scored else "score"
    pairs = [f"minus {table[0]['method']}"] if any(row.get("difference") for row in fine) else []
    seconds = ["s/epoch", *(f"s/epoch, {name}" for name in networks)]
    head = ["method", score, *pairs, "epochs", "steps", "trainers", "norm", "MB", *sent, "messages", *seconds]
    return head, [[row["method"], f"failed: {row['failed']}"] if row["failed"] else _cells(row, sent, bool(pairs)) for row in table]


def markdown(head: list[str], body: Iterable[list[str]]) -> list[str]:
    """Return the lines of a Markdown table: the first column aligned left, the others right. Short rows are padded."""
    filled = [[*cells, *[""] * (len(head) - len(cells))] for cells in body]
    return [_line(head), _line(["---", *["---:"] * (len(head) - 1)]), *map(_line, filled)]


def _cells(row: dict[str, Any], sent: list[str], pairs: bool) -> list[str]:
    megabytes = [format_number(row["bytes"][kind] / 1e6) for kind in ("total", *sent)]
    score = plus_minus(row["score"], percent(row["metric"])) if row.get("score") else ""
    seconds = [row["seconds_per_epoch"], *(under["seconds_per_epoch"] for under in row["networks"].values())]
    steps = "" if row.get("steps") is None else format_number(row["steps"])
    run = [format_number(row["epochs"]), steps, str(row.get("trainers") or ""), row.get("norm") or ""]
    counts = [*run, *megabytes, f"{row['messages']['total']:,.0f}"]
    difference = [_interval(row.get("difference"), percent(row["metric"]))] if pairs else []
    return [row["method"], score, *difference, *counts, *(plus_minus(spread) for spread in seconds)]


def _interval(difference: dict[str, Any] | None, scale: float) -> str:
    """Format a difference and its interval, such as +1.20 [-0.30, 2.70]."""
    if difference is None:
        return ""
    mean, low, high = (scale * difference[name] for name in ("mean", "low", "high"))
    return f"{mean:+.2f} [{low:.2f}, {high:.2f}]" if scale == 100 else f"{mean:+.4g} [{low:.4g}, {high:.4g}]"


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(map(_cell, cells)) + " |"


def _cell(text: str) -> str:
    """Write a text as the cell of a Markdown table; marks that would begin code, a tag, a link or another cell are escaped.

    So are backslashes before a mark, which would otherwise escape the mark, or the backslash that escapes it.
    """
    return re.sub(r"\\(?=[!-/:-@\[-`{-~])|[|`]|\](?=\()", r"\\\g<0>", printable(" ".join(text.split()))).replace("<", "&lt;")


def plus_minus(spread: dict[str, Any], scale: float = 1.0) -> str:
    """Format mean and standard deviation; percentages have two decimals."""
    mean = scale * spread["mean"]
    text = f"{mean:.2f}" if scale == 100 else format_number(mean)
    if spread["std"] is None:
        return text
    deviation = scale * spread["std"]
    return f"{text} ± {deviation:.2f}" if scale == 100 else f"{text} ± {format_number(deviation, 2)}"


def format_number(value: float, digits: int = 4) -> str:
    """Format a number with the given digits; with an exponent only if it is tiny."""
    return f"{float(f'{value:.{digits}g}'):,.12g}" if abs(value) >= 1e-4 or value == 0 else f"{value:.{digits}g}"


def _notes(table: list[dict[str, Any]], networks: list[NetworkModel]) -> Iterator[str]:
    """Yield notes on the columns; on differences from few seeds, and on unequal steps: such rows compare only if each run converged."""
    seeds = {row["difference"]["seeds"] for row in table if row.get("difference")}
    if seeds:
        few = f" {min(seeds)} seeds say little: use --repeats 5 or more." if min(seeds) < _ENOUGH_SEEDS else ""
        yield f"minus {table[0]['method']}: difference of the scores, paired by seed, with its 95 % interval (Student's t).{few}"
    steps = {row["method"]: row["steps"] for row in table if not row["failed"] and row.get("steps")}
    if len(set(steps.values())) > 1:
        counted = ", ".join(f"{method} {format_number(count)}" for method, count in steps.items())
        yield (
            f"The methods made different numbers of steps: {counted}. The rows compare if each run stopped for want of a better score; "
            "otherwise give all as many steps, by batch_size and epochs."
        )
    yield "steps: updates of the weights by one trainer. trainers: ranks that train, without a server. norm: that after hidden layers."
    yield "MB and the kinds: bytes that all ranks sent in training, set-up included and evaluation left out, each message once."
    yield "s/epoch: wall-clock seconds on the machine and the network of the runs. ± is the standard deviation over seeds."
    for network in networks:
        latency, bandwidth = format_number(1e6 * network.latency), format_number(network.bandwidth / 1e6)
        parts = f"messages at {latency} us and bytes at {bandwidth} MB/s of the rank that sends most"
        yield f"{network.label}: computing seconds of the slowest rank, plus {parts}."
