"""The tables of the note on `compare` are those of the kept comparisons."""

import compare_tables
import keep


def test_the_note_has_the_tables_of_what_is_kept():
    text = compare_tables.PAGE.read_text()
    assert compare_tables.write(text) == text


def test_every_kept_graph_has_a_table_and_a_changed_figure_shows():
    text = compare_tables.PAGE.read_text()
    for graph in keep.load("compare"):
        table = compare_tables.table(graph)
        assert table in text
        cell = table.splitlines()[3].split(" | ")[1]
        assert compare_tables.write(text.replace(table, table.replace(cell, "12.3 ± 4.5"))) == text


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
