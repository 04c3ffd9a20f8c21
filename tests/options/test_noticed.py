"""Every option has a test, and that test fails where the option does nothing."""

import ast
from pathlib import Path

import pytest
import typer
from forcing import forced, forced_flag, forced_of_sampler, run
from noticed_by import FLAGS, REFUSED, SAMPLE, SAMPLERS, TRAIN

import bulksample
from bulksample import UsageError, samplers
from bulksample.cli.app import app
from bulksample.config.train import SampleConfig
from bulksample.methods.config import TrainConfig

TABLES = {"train": (TrainConfig, TRAIN), "sample": (SampleConfig, SAMPLE)}


def _rows():
    """(command or "sampler", option, test); all but the first option of each file are long."""
    tables = {command: table | FLAGS[command] for command, (_, table) in TABLES.items()} | {"sampler": SAMPLERS}
    rows, seen = [], set()
    for group, table in tables.items():
        for option, test in table.items():
            again = (group, file := test.partition("::")[0]) in seen
            seen.add((group, file))
            rows.append(pytest.param(group, option, test, marks=pytest.mark.long if again else (), id=f"{group}-{option}"))
    return rows


def without(group, option):
    """Take an option of a sampler or of a command, or a flag of a command itself, away from the code."""
    if group == "sampler":
        return forced_of_sampler(option)
    config, table = TABLES[group]
    return forced(config, option) if option in table else forced_flag(option)


@pytest.mark.parametrize("command", TABLES)
def test_every_option_is_in_the_table(command):
    config, table = TABLES[command]
    declared, listed = set(config.by_name()), set(table)
    assert not listed - declared, "rows of options that do not exist"
    assert not declared - listed, "options without a test that would notice them doing nothing; see noticed_by.py"
    shown = {one.name for one in typer.main.get_command(app).commands[command].params if one.param_type_name == "option" and not one.hidden}
    assert shown - declared == set(FLAGS[command]), "flags of the command without such a test"


def readers(names, without=()):
    """Return the names of options that a file of the package reads as an attribute; files below `without` do not count."""
    package, found = Path(bulksample.__file__).parent, set()
    for file in package.rglob("*.py"):
        if file.relative_to(package).parts[0] not in without:
            attributes = {node.attr for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.Attribute)}
            found |= attributes & set(names)
    return found


@pytest.mark.parametrize("way", [("config",), ("config", "cli")], ids=["command line", "Python"])
def test_every_option_has_a_reader_in_every_way_of_calling(way):
    """An option that the command line alone reads does nothing in `bulksample.train`."""
    declared = set(TrainConfig.by_name())
    assert declared - readers(declared, way) == set()
    planted = declared | {"planted_without_a_reader"}
    assert planted - readers(planted, way) == {"planted_without_a_reader"}


def test_every_option_of_a_sampler_is_in_the_table():
    common = {"fanouts", "frontier"}
    declared = {f"{name}.{field.name}" for name, kind in samplers.SAMPLERS.items() for field in kind._options()}
    assert set(SAMPLERS) == {option for option in declared if option.partition(".")[2] not in common}


@pytest.mark.parametrize(("group", "option", "test"), _rows())
def test_an_option_that_does_nothing_is_noticed(group, option, test, request):
    """It fails by an assertion of its own, so an error on the way does not count; but see `REFUSED`."""
    failure = UsageError if option in REFUSED else (AssertionError, pytest.fail.Exception)
    with without(group, option), pytest.raises(failure, match=REFUSED.get(option)):
        run(test, request)


def test_forcing_reaches_every_reader_but_no_check():
    """An option is legal by what the user gave, and its default to whoever reads it; other options stay as they were."""
    with forced(TrainConfig, "checkpoint"):
        config = TrainConfig.of(checkpoint="here", checkpoint_every=3)
        assert (config.checkpoint, config.checkpoint_every) == (None, 3)
    assert TrainConfig.of(checkpoint="here").checkpoint == "here"
