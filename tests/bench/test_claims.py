"""Figures of docs/claims.md are those of the results that are kept, all of them are marked, and commands are those that made them."""

import re

import claim_figures as figures
import claim_figures_tma as averages
import claims
import keep
import pytest
from scipy.stats import t, ttest_rel

DIFFERENCE = re.compile(r"([-+]?[\d.]+) \[([-\d.]+), ([-\d.]+)(?:; (\d+) seeds)?\]")
VERDICTS = {"holds", "holds where", "does not hold here", "not measurable here"}
TEXT = claims.PAGE.read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in TEXT.splitlines() if line.startswith("| ")][1:]
NAMES = {"RETEXO", "AdaQP", "Grappa", "RandomTMA, SuperTMA", "bulk sampling", "LADIES", "FastGCN", "LABOR", "BNS-GCN", "CoFree", "LLCG"}


@pytest.mark.parametrize("page", claims.PAGES, ids=lambda page: page.parent.name)
def test_a_page_shows_the_figures_that_are_kept(page):
    assert claims.write(page.read_text()) == page.read_text()


def test_every_figure_is_shown_and_every_mark_has_one():
    texts = [page.read_text() for page in claims.PAGES]
    marks = [re.findall(r"<!-- (\S+) -->", text) for text in texts]
    assert marks == [claims.MARKED.findall(text) for text in texts]
    assert {mark for page in marks for mark in page} == set(claims.FIGURES)


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
        assert "..." not in command[1]  # a shell takes the command as it stands


def test_all_papers_are_there():
    assert {row[0] for row in ROWS} == NAMES


def test_a_difference_is_paired_by_seed_and_has_its_interval():
    """Seed 3 has no partner; the other three make Student's interval of paired samples."""
    own, other = {"0": 80.1, "1": 79.2, "2": 81.7, "3": 10.0}, {"2": 81.2, "1": 79.5, "0": 78.6}
    found = ttest_rel([own[seed] for seed in "012"], [other[seed] for seed in "012"]).confidence_interval(0.95)
    average, low, high, seeds = DIFFERENCE.fullmatch(figures.difference(own, other)).groups()
    assert (average, low, high, seeds) == (f"{1.7 / 3:+.1f}", f"{found.low:.1f}", f"{found.high:.1f}", "3")


def test_the_page_says_how_many_seeds_if_they_are_not_five():
    own = {str(seed): float(seed) for seed in range(5)}
    assert "seeds" not in figures.difference(own, dict.fromkeys(own, 1.0))
    assert figures.interval(-0.001, 0.0, 30) == "+0.0 [0.00, 0.00; 30 seeds]"


def test_the_end_of_an_interval_shows_on_which_side_of_zero_it_lies():
    assert [figures.bound(end, 1) for end in (-0.3, -0.04, 0.0, 0.03, 1.04)] == ["-0.3", "-0.04", "0.0", "0.03", "1.0"]


def test_names_of_the_accuracy_table_tell_ranks_and_widths_apart():
    rows = figures.trained()
    assert len(rows) == sum(len(part["result"]["rows"]) for part in keep.load("accuracy").values())
    assert rows["sage@4.dblp"]["ranks"] == 4
    assert rows["pyg-full-128.dblp"]["width"] == 128
    assert rows["pyg-full.dblp"]["width"] is None


def test_runs_of_compare_are_told_apart_by_seed():
    """Each seed keeps its own score, of the row of that method."""
    rows = [{"method": "full", "score": {"values": [0.5, 0.25]}}, {"method": "sync", "score": {"values": [0.75, 1.0]}}]
    assert figures.by_seed(rows, "sync", [3, 4]) == {"3": 75, "4": 100}


def test_rows_with_other_held_out_edges_are_not_paired():
    """Welch's interval by hand: variances 4 and 1 of three seeds each, so the error is sqrt(5 / 3) at 50 / 17 degrees of freedom."""
    half = t.ppf(0.975, 50 / 17) * (5 / 3) ** 0.5
    assert averages.unpaired({"0": 8, "1": 10, "2": 12}, {"0": 9, "4": 7, "5": 8}) == f"+2.0 [{2 - half:.1f}, {2 + half:.1f}]"
