"""The runs of a comparison as one table: JSON for programs, CSV for sheets, Markdown for people.

Every figure is the mean over the seeds of what the reports of the runs say; scores and seconds also with their standard
deviation. Bytes and messages are those of training, summed over ranks: set-up is in them, evaluation is not.
"""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterable
from typing import Any

from ..distributed.comm.base import KINDS
from .compare import Run
from .network import Link

SPLITS = ("test", "val", "train")


def rows(runs: list[Run], networks: list[Link]) -> list[dict[str, Any]]:
    """One object for each method, in the order in which they were asked for; a method that failed has the reason only."""
    labels = dict.fromkeys(run.label for run in runs)
    return [_row(label, [run for run in runs if run.label == label], networks) for label in labels]


def _row(label: str, runs: list[Run], networks: list[Link]) -> dict[str, Any]:
    failed = next((run for run in runs if run.failure), None)
    if failed is not None:
        return {"method": label, "failed": f"seed {failed.seed}: {failed.failure}"}
    reports = [run.report for run in runs if run.report]
    split = scored_split(reports[0])
    metric = reports[0]["metric"]
    return {
        "method": label,
        "failed": None,
        "runs": len(reports),
        "split": split,
        "metric": metric,
        "score": spread(report[f"{split}_{metric}"] for report in reports) if split else None,
        "epochs": _mean(report["epochs_in_this_run"] for report in reports),
        "bytes": {kind: _mean(report["training_bytes"][kind] for report in reports) for kind in ("total", *KINDS)},
        "messages": {kind: _mean(report["training_messages"][kind] for report in reports) for kind in ("total", *KINDS)},
        "busiest_rank": {what: _mean(report["busiest_rank"][what] for report in reports) for what in ("bytes", "messages")},
        "compute_seconds": spread(report["compute_seconds"] for report in reports),
        "seconds_per_epoch": spread(report["seconds_per_epoch"] for report in reports),
        "networks": {link.label: _under(link, reports) for link in networks},
    }


def _under(link: Link, reports: list[dict[str, Any]]) -> dict[str, Any]:
    """Seconds of the run and of an epoch of it under a network."""
    seconds = [link.seconds(report) for report in reports]
    epochs = [max(1, report["epochs_in_this_run"]) for report in reports]
    return {"seconds": spread(seconds), "seconds_per_epoch": spread(a / b for a, b in zip(seconds, epochs, strict=True))}


def scored_split(report: dict[str, Any]) -> str | None:
    """The split whose score counts: test where the graph has one."""
    return next((split for split in SPLITS if report.get(f"{split}_{report['metric']}") is not None), None)


def _mean(values: Iterable[float]) -> float:
    return statistics.fmean(values)


def spread(values: Iterable[float]) -> dict[str, Any]:
    """Mean, standard deviation (None of one value), and the values."""
    found = list(values)
    return {"mean": _mean(found), "std": statistics.stdev(found) if len(found) > 1 else None, "values": found}


def to_csv(table: list[dict[str, Any]]) -> str:
    """A line for each method; nested figures as ``bytes.total``, without the values behind a mean."""
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


def to_markdown(table: list[dict[str, Any]], networks: list[Link], caption: str) -> str:
    """A table with the kinds of bytes that any method sent, and under it what its columns mean."""
    return "\n".join([caption, "", *markdown(*head_and_body(table, [link.label for link in networks])), "", *_notes(networks)]) + "\n"


def head_and_body(table: list[dict[str, Any]], networks: list[str]) -> tuple[list[str], list[list[str]]]:
    """The same as words: names of columns, and a row for each method; of one that failed the reason alone."""
    fine = [row for row in table if not row["failed"]]
    sent = [kind for kind in KINDS if any(row["bytes"][kind] for row in fine)]
    score = " ".join(str(fine[0][key]) for key in ("split", "metric")) + ", %" if fine and fine[0].get("split") else "score"
    head = ["method", score, "epochs", "MB", *sent, "messages", "s/epoch", *(f"s/epoch, {name}" for name in networks)]
    return head, [[row["method"], f"failed: {row['failed']}"] if row["failed"] else _cells(row, sent) for row in table]


def markdown(head: list[str], body: Iterable[list[str]]) -> list[str]:
    """The lines of a table: words on the left in the first column, figures on the right in the others. Short rows are filled up."""
    filled = [[*cells, *[""] * (len(head) - len(cells))] for cells in body]
    return [_line(head), _line(["---", *["---:"] * (len(head) - 1)]), *map(_line, filled)]


def _cells(row: dict[str, Any], sent: list[str]) -> list[str]:
    megabytes = [figure(row["bytes"][kind] / 1e6) for kind in ("total", *sent)]
    score = plus_minus(row["score"], 100) if row.get("score") else ""
    seconds = [row["seconds_per_epoch"], *(under["seconds_per_epoch"] for under in row["networks"].values())]
    counts = [figure(row["epochs"]), *megabytes, f"{row['messages']['total']:,.0f}"]
    return [row["method"], score, *counts, *(plus_minus(spread) for spread in seconds)]


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"


def plus_minus(spread: dict[str, Any], scale: float = 1.0) -> str:
    """Mean and deviation in words; in percent with two digits."""
    mean = scale * spread["mean"]
    said = f"{mean:.2f}" if scale == 100 else figure(mean)
    if spread["std"] is None:
        return said
    deviation = scale * spread["std"]
    return f"{said} ± {deviation:.2f}" if scale == 100 else f"{said} ± {figure(deviation, 2)}"


def figure(value: float, digits: int = 4) -> str:
    """So many digits; an exponent only where the value is tiny."""
    return f"{float(f'{value:.{digits}g}'):,.12g}" if abs(value) >= 1e-4 or value == 0 else f"{value:.{digits}g}"


def _notes(networks: list[Link]) -> list[str]:
    """What the columns mean."""
    said = [
        "MB and the kinds: bytes that all ranks sent in training, set-up included and evaluation left out, each message once.",
        "s/epoch: by the clock, on the machine and the network of the runs. ± is the standard deviation over seeds.",
    ]
    for link in networks:
        said.append(
            f"{link.label}: seconds computed + messages at {figure(1e6 * link.latency)} us + bytes at {figure(link.bandwidth / 1e6)} MB/s, "
            "of the rank that computes longest and of the one that sends most."
        )
    return [f"- {line}" for line in said]
