"""Configurations on the command line: files, flags that override them, flags of the published code, files beside a run."""

import json
import os
from pathlib import Path

import pytest

from bulksample.cli.configured import IGNORED, PUBLISHED, config_beside, flag, name_flags
from bulksample.config.train import SampleConfig
from bulksample.methods.config import TrainConfig
from bulksample.plan import PlanRequest
from bulksample.training.callbacks import lines_beside

SMALL = ["--fanouts", "5,5", "--hidden", "8", "--batch-size", "32", "--epochs", "1", "--threads", "1"]


@pytest.fixture
def show(command):
    def shown(*arguments):
        code, out, err = command("config", "show", *arguments)
        assert code == 0, err
        return out

    return shown


def test_flags_override_the_file_and_the_file_overrides_defaults(show, tmp_path):
    (tmp_path / "run.yaml").write_text("model: {hidden: 64, layers: 3}\nsampling: {fanouts: [4, 4, 4]}\noptimiser: {lr: 0.5}\n")
    assert show("--config", tmp_path / "run.yaml", "--lr", "1e-4", "--fanouts", "9,9") == (
        "model:\n  layers: 2\n  hidden: 64\nsampling:\n  fanouts: [9, 9]\noptimiser:\n  lr: 0.0001\n"
    )
    assert show() == ""
    (tmp_path / "run.yaml").write_text("method: full\nmodel: {batch_norm: true}\ntraffic: {overlap: false}\n")
    assert show("--config", tmp_path / "run.yaml", "--no-batch-norm") == "method: full\ntraffic:\n  overlap: false\n"
    assert show("--config", tmp_path / "run.yaml", "--overlap") == "method: full\nmodel:\n  batch_norm: true\n"


def test_the_resolved_configuration_is_a_configuration_file(show, tmp_path):
    resolved = show("--resolved", "--method", "grappa", "--view", "strict", "--no-overlap", "--options", "replace=true")
    (tmp_path / "run.yaml").write_text(resolved)
    assert show("--config", tmp_path / "run.yaml", "--resolved") == resolved
    assert "grappa:\n  view: strict\n" in resolved
    assert "overlap: false" in resolved
    assert "adaqp" not in resolved


def flags_of(text):
    return {word.split("/")[0] for word in text.split() if word.startswith("--")}


@pytest.mark.long
@pytest.mark.parametrize(("name", "config"), [("train", TrainConfig), ("sample", SampleConfig), ("plan", PlanRequest)])
def test_help_shows_the_flag_of_every_option(command, name, config):
    methods = {group.methods[0] for group in config.groups() if group.methods}
    shown = set()
    for words in ([], *(["--method", method] for method in sorted(methods))):
        code, out, _ = command(name, *words, "--help")
        assert code == 0
        shown |= flags_of(out)
    assert {flag(option) for option in config.model_fields} <= shown
    assert not {flag(alias) for alias in (*PUBLISHED, *IGNORED)} & shown


@pytest.mark.parametrize("method", [None, "sync", "adaqp", "random-tma"])
def test_help_shows_the_options_of_one_method_alone(command, method):
    shown = flags_of(command("train", *([f"--method={method}"] if method else []), "--help").out)
    for group in TrainConfig.groups():
        if group.methods:
            flags = {flag(option) for option in group.model_fields}
            assert flags & shown == (flags if method in group.methods else set()), group


PAPER = ["--sample-method", "sage", "--n-epochs", "30", "--batch-size", "1024", "--n-layers", "3", "--samp-num", "15-10-5",
         "--replication", "1", "--n-bulkmb", "48", "--replicate-graph", "--n-hidden", "256", "--bulk-batch-fetch", "2"]  # fmt: skip


def test_the_command_line_of_the_paper_runs_here(show):
    own = ["--epochs", "30", "--fanouts", "15,10,5", "--bulk-size", "48", "--graph", "replicated", "--fetch-together", "2"]
    assert show(*PAPER) == show(*own)
    assert "bulk_size: 48" in show(*PAPER)


def test_published_flags_without_an_effect_print_the_reason(command):
    assert command("config", "show")[2] == ""
    code, out, err = command("config", "show", "--semibulk", "128", "--n-darts", "5", "--timing")
    assert (code, out) == (0, "")
    assert len(err.splitlines()) == 3
    assert "--n-darts, a flag of the published code, has no effect here" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--n-bulkmb", "4", "--bulk-size", "4"], "--n-bulkmb and --bulk-size set the same option"),
        (["--graph", "partitioned", "--replicate-graph"], "--replicate-graph and --graph set the same option"),
        (["--batch-norm", "--no-batch-norm"], "--no-batch-norm and --batch-norm set the same option"),
        (["--samp-num", "5-x"], "--samp-num must be whole numbers"),
        (["--view", "strict"], "view is an option of the method 'grappa'; got 'sync'"),
        (["--hidden", "many"], "--hidden: input should be a valid integer"),
        (["--config", "none.yaml"], "none.yaml: cannot be read"),
    ],
)
def test_bad_use_exits_2_with_the_reason(command, arguments, said):
    code, _, err = command("config", "show", *arguments)
    assert code == 2
    assert said in err


def test_the_configuration_is_written_beside_every_run(command, show, graph, tmp_path):
    asked = [*SMALL, "--checkpoint", tmp_path / "c", "--json", tmp_path / "deep" / "r.json", "--quiet"]
    code, _, err = command("train", graph, *asked)
    assert code == 0, err
    kept = [tmp_path / "c" / "config.yaml", tmp_path / "deep" / "r.config.yaml"]
    resolved = show("--resolved", *SMALL, "--checkpoint", tmp_path / "c", "--quiet")
    assert [file.read_text() for file in kept] == [resolved] * 2
    code, _, err = command("train", graph, "--config", kept[1], "--json", tmp_path / "again.json", "--overwrite")
    assert code == 0, err
    assert (tmp_path / "again.config.yaml").read_text() == resolved
    first, again = (json.loads((tmp_path / name).read_text()) for name in ("deep/r.json", "again.json"))
    assert first["train_loss"] == again["train_loss"]


def test_the_file_of_config_is_never_overwritten(command, graph, tmp_path):
    own = tmp_path / "r.config.yaml"
    own.write_text("# mine\nsampling: {fanouts: [3, 3], batch_size: 64}\n")
    code, _, err = command("sample", graph, "--config", own, "--json", tmp_path / "r.json", "--threads", 1)
    assert code == 0, err
    assert own.read_text().startswith("# mine\n")
    code, _, err = command("sample", graph, "--config", own, "--json", tmp_path / "s.json", "--threads", 1)
    assert "fanouts: [3, 3]" in (tmp_path / "s.config.yaml").read_text()
    digests = [json.loads((tmp_path / name).read_text())["digest"] for name in ("r.json", "s.json")]
    assert digests[0] == digests[1]


@pytest.mark.long
def test_compare_takes_a_file_for_all_methods(command, graph, tmp_path):
    (tmp_path / "run.yaml").write_text(
        "seed: 3\nmodel: {hidden: 8}\nsampling: {fanouts: [5, 5], batch_size: 32}\noptimiser: {epochs: 1}\nbns: {boundary_share: 0.5}\n"
        "output: {quiet: true}\ntraffic: {overlap: false}\n"
    )
    code, _, err = command("compare", graph, "--methods", "sync", "--config", tmp_path / "run.yaml", "-o", tmp_path / "out",
                           "--no-plots", "--quiet", "--", "--batch-size", "16", "--threads", "1")  # fmt: skip
    assert code == 0, err
    folder = tmp_path / "out" / "runs" / "sync" / "seed-0"
    asked = json.loads((folder / "run.json").read_text())["asked"]["options"]
    assert asked[:2] == ["--method", "sync"]
    assert not {"--boundary-share", "--no-overlap"} & set(asked)
    assert "batch_size: 16" in (folder / "report.config.yaml").read_text()
    assert "hidden: 8" in (folder / "report.config.yaml").read_text()
    assert "run.yaml --batch-size 16" in (tmp_path / "out" / "table.md").read_text()


@pytest.mark.parametrize(("message", "shown"), [
    ("no rows: use cache_bytes, or graph partitioned", "no rows: use --cache-bytes, or --graph partitioned"),
    ("because graph partitioned is asked: use graph replicated", "because graph partitioned is asked: use --graph replicated"),
    ("cache_by inclusion: got /tmp/cache_bytes and 'eval_every'", "--cache-by inclusion: got /tmp/cache_bytes and 'eval_every'"),
    ("nothing to name", "nothing to name"),
    ("bulk_size: got 'x'; use auto", "--bulk-size: got 'x'; use auto"),
    ("use resume='auto', another folder, or overwrite=True", "use --resume auto, another folder, or --overwrite"),
    ("use undirected=True or undirected=False; vertices=N keeps", "use --undirected or --directed; --vertices N keeps"),
    ("skip a line of names with skip=1", "skip a line of names with --skip 1"),
    ("model: got 'a:b'; the model: got lost", "--model: got 'a:b'; the model: got lost"),
    ("metrics writes .jsonl; got /tmp/overwrite=True", "--metrics writes .jsonl; got /tmp/overwrite=True"),
    ("run.yaml:3: batch_size: input should be greater than 0", "run.yaml:3: batch_size: input should be greater than 0"),
    ("use one of seed_weights:vertex_cut:item, user:buys:eval_every", "use one of seed_weights:vertex_cut:item, user:buys:eval_every"),
    ("coefficients need coverage; use a sampler full of it", "coefficients need coverage; use a sampler full of it"),
])  # fmt: skip
def test_messages_name_options_as_flags(message, shown):
    assert name_flags(message) == shown


def test_nothing_is_written_beside_a_device(tmp_path):
    for beside in (config_beside, lines_beside):
        assert beside(Path(os.devnull)) is None


@pytest.mark.parametrize("name", ["r", "r.json", "r.JSON", "lr0.1", "lr0.5", "v1.2.json"])
def test_what_lies_beside_a_result_has_its_whole_name(name):
    """Only the ending of the format gives way, so lr0.1 and lr0.5 share nothing."""
    stem = {"r.json": "r", "r.JSON": "r", "v1.2.json": "v1.2"}.get(name, name)
    assert config_beside(Path(f"a/{name}")) == Path(f"a/{stem}.config.yaml")
    assert lines_beside(Path(f"a/{name}")) == Path(f"a/{stem}.jsonl")


@pytest.mark.parametrize("other", ["r", "r.JSON"])
def test_two_results_that_share_a_companion_are_refused(command, graph, tmp_path, other):
    first = command("sample", graph, "--fanouts", "3", "--threads", 1, "--json", tmp_path / "r.json")
    assert first.code == 0, first
    kept = {file: file.read_bytes() for file in tmp_path.iterdir()}
    second = command("sample", graph, "--fanouts", "2", "--threads", 1, "--json", tmp_path / other)
    assert second.code == 2
    assert "r.config.yaml exists already" in second.err
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == kept
