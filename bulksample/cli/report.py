"""`bulksample report`: results of runs as one HTML page, with charts and tables as files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from .output import OverwriteOption, ending, hold_checked, hold_outputs


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="JSON of train, sample or compare, JSON lines, or folders of them.")],
    out: Annotated[
        Path, typer.Option("-o", "--out", callback=ending("--out", ".html", ".htm"), help="The page, one self-contained HTML file.")
    ] = Path("report.html"),
    png: Annotated[Path | None, typer.Option(callback=ending("--png"), help="Folder for the charts as PNG files.")] = None,
    markdown: Annotated[
        Path | None, typer.Option(callback=ending("--markdown", ".md", ".markdown"), help="File for the tables as Markdown.")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(callback=ending("--csv", ".csv"), help="File with a line for each run: its numbers and settings.")
    ] = None,
    title: Annotated[str, typer.Option(help="Title of the page.")] = "Runs of bulksample",
    device: Annotated[str, typer.Option(help="Device of plan for predictions on more ranks, such as a100-80gb.")] = "cpu",
    network: Annotated[str, typer.Option(help="Network of plan for predictions on more ranks, such as ethernet-10g.")] = "loopback",
    overwrite: OverwriteOption = False,
    mixed_versions: Annotated[bool, typer.Option("--mixed-versions", help="Accept runs of several versions of bulksample.")] = False,
) -> None:
    """Write a page about runs: tables, phases, scores, losses, scaling, balance of ranks, differences, environments."""
    from ..data.atomic import write_file
    from ..data.result_places import check_folder
    from ..plan.profiles import DEVICES, NETWORKS, named
    from ..report.page import Page
    from ..report.reading import read

    hold_outputs(overwrite, out, markdown, csv)
    hold_checked(lambda: check_folder(overwrite, png), png)
    named(DEVICES, device, "device"), named(NETWORKS, network, "network")
    reading = read(runs, mixed_versions)
    page = Page(reading, device, network)
    for path, reason in reading.skipped:
        print(f"bulksample: {path} is left out: it {reason}", file=sys.stderr)
    write_file(out, page.to_html(title))
    written = [out, *(page.write_pngs(png) if png else [])]
    if markdown:
        write_file(markdown, page.to_markdown(title))
    if csv:
        write_file(csv, page.to_csv())
    written += [file for file in (markdown, csv) if file]
    print(", ".join(map(str, written[:1] + written[1:][:3])) + (f" and {len(written) - 4} more" if len(written) > 4 else ""))
