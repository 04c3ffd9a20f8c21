"""Names that others chose do not reach a terminal, a table or a page as commands."""

import re
import unicodedata
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from launch import run_alone
from markdown_it import MarkdownIt

import bulksample as bs
from bulksample.errors import DataError
from bulksample.log import warn
from bulksample.printable import printable
from bulksample.report.drawing import short_label
from bulksample.report.page import Page
from bulksample.report.reading import Reading
from bulksample.report.table import markdown

ODD = "a\0b\x1b[31mc\u202ed\r\u2066e"  # NUL, a colour, two marks of direction, a return to the beginning of the line


def commands(text):
    """The characters of a text that a terminal obeys or does not show, other than the ends of lines."""
    return {letter for letter in text if unicodedata.category(letter) in ("Cc", "Cf", "Cs") and letter not in "\n\u200c\u200d"}


def test_every_letter_that_is_not_shown_is_spelled_and_read_back_as_itself():
    text = "".join(map(chr, [*range(0x3000), *range(0xFE00, 0x11000), 0xE0001])) + "\\"
    for letter in text:
        spelled = printable(letter)
        assert not commands(spelled)
        assert spelled == letter or spelled.encode().decode("unicode_escape") == letter
    for word in ("Überfall", "作者", "paper → author", "👩\u200d💻", "क्\u200cष", "10\u00a0km", "全\u3000角"):
        assert printable(word) == word


def test_the_middle_of_a_long_text_is_counted():
    short = printable("x" * 100_000)
    left = int(re.search(r"\(([\d,]+) characters\)", short)[1].replace(",", ""))
    assert left + short.count("x") == 100_000
    assert len(short) < 5000


@pytest.mark.parametrize("more", [(), ("--statistics",)])
def test_data_info_shows_a_foreign_name_without_its_commands(tmp_path, more):
    bs.from_edges([0, 1], [1, 2], name=ODD).save(tmp_path / "store")
    shown = run_alone(["-m", "bulksample", "data", "info", tmp_path / "store", *more])
    assert shown.returncode == 0, shown
    assert not commands(shown.stdout + shown.stderr)
    assert "a\\x00b\\x1b[31mc" in shown.stdout


def test_a_message_shows_a_foreign_path_without_its_commands(tmp_path):
    shown = run_alone(["-m", "bulksample", "data", "info", tmp_path / ODD.replace("\0", "")])
    assert shown.returncode == 65, shown
    assert not commands(shown.stdout + shown.stderr)


def test_a_warning_shows_a_foreign_name_without_its_commands(capsys):
    warn(f"type {ODD} has no labels\nuse another")
    shown = capsys.readouterr().err
    assert not commands(shown)
    assert len(shown.splitlines()) == 2


def test_cells_of_markdown_begin_no_code_tag_link_or_cell():
    marks = "a|b `c` <script> [d](javascript:e) [-0.30, 2.70] " + ODD
    line = markdown(["one", "two"], [[marks, "3"]])[-1]
    assert not commands(line)
    assert len(re.findall(r"(?<!\\)\|", line)) == 3  # the borders of two cells
    assert not re.search(r"<|(?<!\\)`|(?<!\\)\]\(", line)
    assert "[-0.30, 2.70]" in line


@pytest.mark.parametrize("text", [r"[d\](http:e)", r"a\`b\`", r"a\|b", r"a\\|b", r"a\<b>", r"a\\", "a\\", r"C:\data"])
def test_backslashes_of_a_cell_undo_no_escape(text):
    """CommonMark with the tables of GitHub reads each cell as the text that was given."""
    html = MarkdownIt("commonmark").enable("table").render("\n".join(markdown(["one", "two"], [[text, "3"]])))
    assert [unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", html)] == [text, "3"]


def test_a_page_and_a_chart_show_a_foreign_name_without_its_commands():
    page = Page(Reading([], [], [], [(Path("runs") / ODD.replace("\0", ""), f"names {ODD} <b>")]))
    text = page.to_html(f"Runs of {ODD}")
    assert not commands(text + page.to_markdown(ODD))
    assert text.count("b\\x1b[31mc") >= 3
    assert "&lt;b&gt;" in text
    assert not commands(short_label(ODD))


@pytest.mark.parametrize(
    ("name", "said"), [("x" * 10**6, "has a name of 1,000,000 characters; use at most 1,000"), ("a\udc80", "UTF-8 cannot spell")]
)
def test_what_cannot_be_a_name_is_refused_in_short_words(tmp_path, name, said):
    graph = bs.from_edges([0, 1], [1, 2])
    kind, relation = graph.types[0], graph.relations[0]
    makes = {
        "graph": lambda: graph.replace(name=name).save(tmp_path / "graph"),
        "type": lambda: bs.Graph.of([type(kind)(name=name, count=3)]).save(tmp_path / "type"),
        "relation": lambda: bs.Graph.of(
            [type(kind)(name="v", count=3)], [type(relation)("v", name, "v", relation.adjacency, np.arange(2))]
        ).save(tmp_path / "relation"),
    }
    for what, make in makes.items():
        with pytest.raises(DataError, match=said) as refused:
            make()
        assert str(refused.value).startswith(what)
        assert len(str(refused.value)) < 200
        assert not (tmp_path / what).exists()
