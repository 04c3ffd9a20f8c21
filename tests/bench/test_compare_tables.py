"""The tables of the notes on `compare` and RETEXO are those of the kept comparisons."""

import compare_tables
import keep
import pytest

KEPT = [("compare", graph) for graph in keep.load("compare")] + [("retexo", "refine-hard-sbm")]


def note(theme: str) -> str:
    (page,) = (page for page in compare_tables.PAGES if page.parent.name == theme)
    return page.read_text()


@pytest.mark.parametrize("page", compare_tables.PAGES, ids=lambda page: page.parent.name)
def test_a_note_has_the_tables_of_what_is_kept(page):
    assert compare_tables.write(page.parent.name, page.read_text()) == page.read_text()


@pytest.mark.parametrize(("theme", "part"), KEPT)
def test_every_kept_comparison_has_a_table_and_a_changed_figure_shows(theme, part):
    text, table = note(theme), compare_tables.table(theme, part)
    assert table in text
    cell = table.splitlines()[3].split(" | ")[1]
    assert compare_tables.write(theme, text.replace(table, table.replace(cell, "12.3 ± 4.5"))) == text


def test_the_overview_of_methods_has_the_figures_of_what_is_kept():
    text = compare_tables.OVERVIEW.read_text()
    table = compare_tables.overview()
    assert table in text
    llcg = next(row for row in keep.read("compare", "cora")["methods"] if row["method"] == "llcg")
    line = next(line for line in table.splitlines() if line.startswith("| `llcg` |"))
    assert line.split(" | ")[-3:-1] == [
        f"{100 * llcg['score']['mean']:.1f} ± {100 * llcg['score']['std']:.1f}",
        f"{llcg['bytes']['total'] / 1e6:.0f}",
    ]
    assert compare_tables.write_overview(text.replace(line, "| `llcg` | 1 | 2 | 3 | 4 | 5 | 6 |")) == text
