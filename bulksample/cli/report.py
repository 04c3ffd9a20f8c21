"""`bulksample report`: results of runs as one page, with its figures and tables as files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="JSON of train, sample or compare, JSON lines, or folders of them.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The page: one HTML file that needs nothing else.")] = Path("report.html"),
    png: Annotated[Path | None, typer.Option(help="A folder for each figure as a PNG.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="The tables as Markdown.")] = None,
    csv: Annotated[Path | None, typer.Option(help="A line for each run, with its figures and settings.")] = None,
    title: Annotated[str, typer.Option(help="Of the page.")] = "Runs of bulksample",
    device: Annotated[str, typer.Option(help="Of predictions for more ranks: a device of plan.")] = "cpu",
    network: Annotated[str, typer.Option(help="Of predictions for more ranks: a network of plan.")] = "loopback",
    mixed_versions: Annotated[bool, typer.Option("--mixed-versions", help="Take runs that several versions of bulksample made.")] = False,
) -> None:
    """Write a page of runs: tables, phases, scores against time and bytes, losses, scaling, balance, what differs, environments."""
    from ..plan.profiles import DEVICES, NETWORKS, named
    from ..report.page import Page
    from ..report.reading import read

    named(DEVICES, device, "device"), named(NETWORKS, network, "network")
    found = read(runs, mixed_versions)
    page = Page(found, device, network)
    for path, reason in found.skipped:
        print(f"bulksample: {path} is left out: it {reason}", file=sys.stderr)
    out.write_text(page.to_html(title))
    written = [out, *(page.write_pngs(png) if png else [])]
    for file, text in ((markdown, lambda: page.to_markdown(title)), (csv, page.to_csv)):
        if file:
            file.write_text(text())
            written.append(file)
    print(", ".join(map(str, written[:1] + written[1:][:3])) + (f" and {len(written) - 4} more" if len(written) > 4 else ""))
