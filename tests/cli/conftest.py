"""Fixtures that run the command line in this process."""

from __future__ import annotations

import json
import sys
from typing import NamedTuple

import pytest
from communities import community_graph

from bulksample.data import store


class Ended(NamedTuple):
    """The exit code of a command, and what it printed."""

    code: int
    out: str
    err: str


@pytest.fixture
def command(monkeypatch, capsys):
    """Run `bulksample` with some arguments in this process."""

    def run(*arguments):
        from bulksample.cli import main

        monkeypatch.setattr(sys, "argv", ["bulksample", *map(str, arguments)])
        with pytest.raises(SystemExit, match=r"^\d*$|^None$") as ended:  # an exit code; text would be a message in its place
            main()
        printed = capsys.readouterr()
        return Ended(ended.value.code or 0, printed.out, printed.err)

    return run


@pytest.fixture
def result(command):
    """Run a command that must succeed, and return its JSON object."""

    def run(*arguments):
        ended = command(*arguments, "--json", "-")
        assert ended.code == 0, ended.err
        return json.loads(ended.out)

    return run


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """The folder of a store: a small graph with communities, features and labels."""
    place = tmp_path_factory.mktemp("graph") / "g"
    store.save(community_graph(), place)
    return place
