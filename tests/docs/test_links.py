"""Links and names of files in README, docs/, bench/results/ and the other pages of the repository lead somewhere."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench" / "results").rglob("*.md")])
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
NAMED = re.compile(r"`((?:bulksample|bench|tests|csrc|docs|examples|slurm)/[\w./-]+)`")


def name(page):
    return page.relative_to(ROOT).as_posix()


def prose(page):
    """Return the text of a page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_relative_links_lead_to_files(page):
    links = [link for link in LINK.findall(prose(page)) if not re.match(r"https?://|mailto:", link)]
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_paths_in_the_text_exist(page):
    paths = [path for path in NAMED.findall(prose(page)) if "bench/results/THEME" not in path]
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_readme_is_read_in_one_sitting_and_is_no_part_of_a_page():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120
    assert [name(page) for page in (ROOT / "docs").rglob("*.md") if "{include}" in page.read_text()] == []


@pytest.mark.parametrize("theme", sorted((ROOT / "bench" / "results").glob("*/")), ids=lambda theme: theme.name)
def test_a_theme_has_a_note_its_figures_and_one_picture_at_most(theme):
    files = {file.name for file in theme.iterdir()}
    pictures = {file for file in files if file.endswith(".png")}
    assert files - pictures <= {"README.md", "latest.json"}
    assert "README.md" in files
    assert len(pictures) <= 1
    assert f"({theme.name}/README.md)" in (theme.parent / "README.md").read_text()
    if "latest.json" in files:
        kept = json.loads((theme / "latest.json").read_text())
        assert kept["theme"] == theme.name
        assert all({"date", "command", "result"} == set(part) for part in kept["parts"].values())
