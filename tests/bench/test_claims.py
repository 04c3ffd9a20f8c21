"""Figures of docs/claims.md are those of the results that are kept, all of them are marked, and commands are those that made them."""

import re

import claims
import keep
import pytest

VERDICTS = {"holds", "holds where", "does not hold here", "not measurable here", "not yet measured"}
TEXT = claims.PAGE.read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in TEXT.splitlines() if line.startswith("| ")][1:]
NAMES = {"RETEXO", "AdaQP", "Grappa", "RandomTMA, SuperTMA", "bulk sampling", "LADIES", "FastGCN", "LABOR", "BNS-GCN", "CoFree", "LLCG"}


def test_the_page_shows_the_figures_that_are_kept():
    assert claims.write(TEXT) == TEXT


def test_every_figure_is_shown_and_every_mark_has_one():
    marks = re.findall(r"<!-- ([\w.-]+) -->", TEXT)
    assert marks == claims.MARKED.findall(TEXT)
    assert set(marks) == set(claims.FIGURES)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}: {row[1][:40]}")
def test_no_figure_of_ours_stands_without_a_mark(row):
    assert len(row) == 6
    ours = claims.MARKED.sub("", " ".join(row[3:]))
    assert re.findall(r"\d", re.sub(r"`[^`]*`|\d+ [MG]bit/s", "", ours)) == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}: {row[1][:40]}")
def test_a_row_has_a_verdict_and_the_command_of_its_note(row):
    assert row[4] in VERDICTS
    assert bool(row[3]) or row[4].startswith("not ")
    command, theme = re.match(r"`([^`]+)`", row[2]), re.search(r"results/(\w+)/README", row[2])
    if row[3]:
        kept = [part["command"] for part in keep.load(theme[1]).values()]
        assert any(made.startswith(command[1].removesuffix("…").rstrip()) for made in kept)


def test_all_papers_are_there():
    assert {row[0] for row in ROWS} == NAMES
