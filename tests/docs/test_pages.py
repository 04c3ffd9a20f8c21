"""Commands and Python of README.md and docs/ run as shown: the commands in the order of the page, then its Python as one program.

A block marked ``bash`` or ``python`` is run; ``text`` marks what only a cluster can run, outlines of commands, and output.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from launch import alive
from waiting import PATIENCE

from bulksample.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
LANGUAGES = {"bash", "python", "text", "yaml", "json"}
MARK = "BULKSAMPLE_PAGE"


def blocks(page):
    """The fenced blocks of a page: (language, code)."""
    return re.findall(r"^```([^\n]*)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def code(page, language):
    return "\n".join(body for marked, body in blocks(page) if marked == language)


def name(page):
    return page.relative_to(ROOT).as_posix()


def outlines(page):
    """The commands of ``text`` blocks, (words after bulksample, options): of alternatives the first, none of comments and output."""
    lines = code(page, "text").replace("\\\n", " ").splitlines()
    for line in re.sub(r"\{([\w-]+),[^}]*\}", r"\1", "\n".join(lines)).splitlines():
        for called in re.findall(r"(?<![\w./'])bulksample ([a-z][^#|]*?)(?=bulksample |#|\||$)", line):
            yield called.split(), re.findall(r"(?<![\w-])--[a-z][\w-]*", called.split(" -- ")[0])


def command(words):
    """The command that is called, with the words that are not part of its name left out."""
    found = typer.main.get_command(app)
    for word in words:
        if not hasattr(found, "commands") or word not in found.commands:
            break
        found = found.commands[word]
    return found


def options(found):
    return {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}


def run(command, folder, mark):
    """Run a program of a page where its commands are those of this environment; nothing that it started stays alive."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", MARK: mark}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
    done = subprocess.run(command, cwd=folder, env=environment, text=True, timeout=PATIENCE, **streams)
    assert done.returncode == 0, done.stdout
    assert not alive(f"{MARK}={mark}")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_blocks_say_what_they_are(page):
    assert {language for language, _ in blocks(page) if not language.startswith("{")} <= LANGUAGES


@pytest.mark.long
@pytest.mark.parametrize("page", [page for page in PAGES if code(page, "bash") or code(page, "python")], ids=name)
def test_a_page_runs_as_it_is_shown(page, tmp_path):
    runners = {"bash": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}
    for language, runner in runners.items():
        if program := code(page, language):
            run([*runner, program], tmp_path, f"{os.getpid()}-{name(page)}-{language}")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_outlines_name_commands_and_options_that_exist(page):
    for words, named in outlines(page):
        found = command(words)
        assert not hasattr(found, "commands"), f"bulksample {' '.join(words)} is no command"
        assert set(named) <= options(found), f"bulksample {' '.join(words)}"


@pytest.mark.long
def test_the_pages_form_a_site_without_a_dead_link(tmp_path):
    pytest.importorskip("sphinx", reason="sphinx is not installed: pip install 'bulksample[docs]'")
    build = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs", ".", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "docs" / "index.html").exists()
    assert "docs/index.html" in (tmp_path / "index.html").read_text()
