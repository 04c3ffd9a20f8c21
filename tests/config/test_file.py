"""Configurations in files: read with the line of every value, written so that they are read back."""

import re
from pathlib import Path

import pytest

from bulksample import UsageError
from bulksample.config import file as yaml_file
from bulksample.config.file import write
from bulksample.config.train import SampleConfig
from bulksample.methods.config import TrainConfig

GROUPS = [group.group for group in TrainConfig.groups() if group.group]

BOMB = "hidden: 3\nfanouts: [&a0 [1], " + ", ".join(f"&a{n} [{', '.join(10 * [f'*a{n - 1}'])}]" for n in range(1, 5)) + "]"


def read(path, wanted=TrainConfig):
    return yaml_file.read(path, wanted, TrainConfig, SampleConfig)


def made(given, kind=TrainConfig):
    return kind.made({key: one.value for key, one in given.items()}, {key: one.origin for key, one in given.items()})


@pytest.fixture
def file(tmp_path):
    def written(text):
        (tmp_path / "run.yaml").write_text(text)
        return tmp_path / "run.yaml"

    return written


@pytest.mark.parametrize("options", [
    {}, {"method": "adaqp", "bits": "uniform", "links": "a: b"},
        {"lr": 1e-7, "fanouts": (-1, 5), "sampler_options": {"replace": True, "n": 3}},
    {"method": "grappa", "shrink": 0.25, "full_graph": True}, {"method": "grappa", "shrink": "ess", "halo_rows": 3},
    {"bulk_size": 7, "label": "null", "checkpoint": "yes", "partition": "# no comment", "seed": 2**64 - 1},
    {"method": "llcg", "interval": "12", "server_lr": 0.5, "task": "links", "metric": "hits@10"},
])  # fmt: skip
@pytest.mark.parametrize("changed", [False, True])
def test_what_is_written_is_read_back(file, options, changed):
    config = TrainConfig.of(**options)
    text = write(config, config.method, changed)
    assert made(read(file(text))) == config
    assert write(made(read(file(text))), config.method, changed) == text


def test_a_resolved_file_names_every_option_of_the_method_and_of_no_other(file):
    found = read(file(write(TrainConfig.of(method="bns"), "bns")))
    groups = {name: group.methods for name, (group, _) in TrainConfig.by_name().items()}
    assert found.keys() == {name for name, methods in groups.items() if not methods or "bns" in methods}
    assert write(TrainConfig.of(), "sync", changed=True) == ""


def test_groups_and_top_level_and_hyphens_mean_the_same(file):
    grouped = read(file("model: {model: gat, hidden: 8}\nsampling:\n  batch-size: 4\n  fanouts: 5-5\nrunning:\n"))
    flat = read(file("model: gat\nhidden: 8\nbatch_size: 4\nfanouts: [5, 5]\n"))
    assert made(grouped) == made(flat) == TrainConfig.of(model="gat", hidden=8, batch_size=4, fanouts=(5, 5))
    assert read(file("")) == {}


def test_numbers_are_read_as_they_stand(file):
    found = made(read(file("optimiser: {lr: 1e-3}\nmethod: adaqp\nadaqp: {bits: 4}\nsampling: {bulk_size: 8}\nrunning: {threads: ~}\n")))
    assert (found.lr, found.bits, found.bulk_size, found.threads) == (0.001, "4", 8, None)


def test_one_file_serves_sample_and_train(file):
    path = file("sampling: {fanouts: [4, 4]}\nepoch: {minibatches: 3}\noptimiser: {lr: 0.5}\n")
    assert made(read(path)) == TrainConfig.of(fanouts=(4, 4), lr=0.5)
    assert made(read(path, SampleConfig), SampleConfig) == SampleConfig.of(fanouts=(4, 4), minibatches=3)


def test_options_of_train_stand_under_their_groups_for_sample(file):
    with pytest.raises(UsageError, match=r"run.yaml:2: there is no option 'hidden'; use .* write it under model\)"):
        read(file("method: sync\nhidden: 3"), SampleConfig)
    assert read(file("method: sync\nmodel: {hidden: 3}"), SampleConfig) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("seed: 1\nhiden: 3", r"run.yaml:2: there is no option 'hiden'; did you mean 'hidden'"),
        ("model:\n  model: gat\n  hiden: 3", r"run.yaml:3: there is no option 'hiden'; did you mean 'hidden'"),
        ("modle:\n  hidden: 3", r"run.yaml:1: there is no option 'modle'; did you mean 'model'"),
        ("xyzzy: 3", rf"run.yaml:1: there is no option 'xyzzy'; use method, seed, .*{GROUPS[0]}, {GROUPS[1]}"),
        (
            "epoch: 3",
            r"run.yaml:1: there is no option 'epoch'; did you mean 'epochs'\? \(as an option of another command, write it under epoch\)",
        ),
        ("minibatches: 9", r"run.yaml:1: there is no option 'minibatches'; .* \(as an option of another command, write it under epoch\)"),
        ("model:\n  epochs: 4", r"run.yaml:2: epochs is no option of model; write it under optimiser"),
        ("model:\n  seed: 4", r"run.yaml:2: seed is no option of model; write it at the top"),
        ("hidden: 3\nmodel: {hidden: 4}", r"run.yaml:2: hidden stands already at .*run.yaml:1"),
        ("hidden: 3\nhidden: 4", r"run.yaml:2: hidden stands already"),
        ("- hidden", r"run.yaml:1: each line must be KEY: VALUE; got a sequence"),
        ("model: [", "run.yaml: is no YAML: .*line 1"),
        ("hidden: 3\n---\nhidden: 4", "run.yaml: is no YAML: expected a single document"),
        ("sampler_options: !!python/object:os.system {a: b}", "run.yaml:1: got the tag 'tag:yaml.org,2002:python/object:os.system'; write"),
        ("seed: 1\nmodel: !thing {hidden: 8}", "run.yaml:2: got the tag '!thing'; write the value without a tag"),
        ("model:\n  hidden: !thing 8", "run.yaml:2: got the tag '!thing'"),
        ("fanouts: [5, !thing 8]", "run.yaml:1: got the tag '!thing'"),
        ("hidden: 3\x07", "run.yaml: is no YAML: .*special characters are not allowed"),
        ("hidden: " + 5000 * "[", "run.yaml: is nested too deeply"),
        ("epochs: &three 3\nlayers: *three", "run.yaml:1: an alias repeats the value of this line; write it out"),
        (BOMB, "run.yaml:2: an alias repeats the value of this line; write it out"),
        ("fanouts: &a [*a]", "run.yaml:1: an alias repeats the value of this line; write it out"),
        ("sampler_options: {when: 2001-99-99}", "run.yaml: is no YAML: month must be in 1..12"),
    ],
)
def test_what_does_not_fit_is_found_by_its_line(file, text, said):
    with pytest.raises(UsageError, match=said):
        read(file(text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("seed: 1\nmodel:\n  hidden: 1", r"run.yaml:3: hidden: input should be greater than or equal to 2; got '1'"),
        ("seed: 1\nmodel: gin", r"run.yaml:2: model: got 'gin'; did you mean"),
        ("sampling:\n  fanouts: 5,x", r"run.yaml:2: fanouts must be whole numbers joined by commas; got '5,x'"),
        ("grappa:\n  view: strict", r"view is an option of the method 'grappa'; got 'sync'"),
        ("hidden: [3]", r"run.yaml:1: hidden: input should be a valid integer"),
        ("sampler_options: [3]", r"run.yaml:1: sampler_options: input should be a valid dict"),
    ],
)
def test_a_value_that_does_not_fit_is_found_by_its_line(file, text, said):
    with pytest.raises(UsageError, match=said):
        made(read(file(text)))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"none.yaml: cannot be read"):
        read(tmp_path / "none.yaml")


def test_options_and_groups_have_names_of_their_own():
    """A key at the top is an option or a group; only `model` is both, and what it holds decides."""
    assert set(GROUPS) & TrainConfig.model_fields.keys() <= {"model"}
    for config in (TrainConfig, SampleConfig):
        assert config.by_name().keys() == config.model_fields.keys()
        assert sum(len(group.model_fields) for group in config.groups()) == len(config.model_fields)
        assert all(group.title for group in config.groups())


def test_the_page_names_every_group():
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    named = set(re.findall(r"`([\w-]+)`", " ".join(re.findall(r"^\| (`.*?) \|", page, re.MULTILINE))))
    assert named >= {group.group for config in (TrainConfig, SampleConfig) for group in config.groups() if group.group}
