"""Configurations: typed, bounded, and helpful about what does not fit."""

import subprocess
import sys
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from bulksample import UsageError
from bulksample.config.groups import DEFAULT_FANOUTS, SamplingOptions
from bulksample.methods import METHODS
from bulksample.methods.config import TrainConfig
from bulksample.samplers import SAMPLERS


def test_layers_follow_fanouts_and_fanouts_follow_layers():
    assert TrainConfig.of().fanouts == DEFAULT_FANOUTS
    assert TrainConfig.of(fanouts=(4, 3)).layers == 2
    assert TrainConfig.of(layers=2).fanouts == (15, 10)
    assert TrainConfig.of(layers=5).fanouts == (15, 10, 5, 5, 5)
    assert TrainConfig.of(layers=None, fanouts=None) == TrainConfig.of()
    assert TrainConfig.of(sampler="shadow", layers=4, fanouts=(5, 5)).layers == 4


@pytest.mark.parametrize("name", ["track", "eval_splits"])
def test_words_may_come_from_what_can_be_read_once(name):
    words = ["test", "val"]
    read = getattr(TrainConfig.of(**{name: iter(words)}), name)
    assert read == getattr(TrainConfig.of(**{name: words}), name)
    assert len(read) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hiden": 3}, "did you mean 'hidden'"),
        ({"checkpoint": "a\0b"}, r"^checkpoint: got 'a\\x00b'; use a text without the null character$"),
        ({"checkpoint": Path("a\0b")}, "^checkpoint: got .*; use a text without the null character$"),
        ({"track": 3}, "^track: input should be a valid tuple; got 3$"),
        ({"eval_splits": 1.5}, "^eval_splits: input should be a valid tuple; got 1.5$"),
        ({"layers": 10**12}, "^layers: input should be less than or equal to 64; got 1000000000000$"),
        ({"metrics": "\0"}, "^metrics: got .*; use a text without the null character$"),
        ({"xyzzy": 3}, "there is no option 'xyzzy'; use method, seed, model"),
        ({"hidden": 0}, r"hidden: input should be greater than or equal to 2; got 0"),
        ({"graph": "partitioned", "cache_bytes": -1}, "cache_bytes: input should be greater than or equal to 0; got -1"),
        ({"lr": 0.0}, "lr: input should be greater than 0"),
        ({"dropout": 1.0}, "dropout: input should be less than 1"),
        ({"model": "gin"}, "model: got 'gin'; did you mean 'gcn'"),
        ({"model": "mlp"}, "model: got 'mlp'; use sage, sage-pool, gcn, gat"),
        ({"method": "adapq"}, "there is no method 'adapq'; did you mean 'adaqp'"),
        ({"sampler": "lady"}, "sampler: got 'lady'; did you mean 'ladies'"),
        ({"method": "grappa", "view": "strict", "halo_rows": 3}, "got 3 with view 'strict': use view halo"),
        ({"epochs": 2.5}, "epochs: input should be a valid integer"),
        ({"epochs": "3"}, "^epochs: got '3'; use a number$"),
        ({"epochs": np.True_}, "^epochs: got .*True.*; use a number$"),
        ({"lr": "0.1"}, "^lr: got '0.1'; use a number$"),
        ({"memory_budget": "4096"}, "^memory_budget: got '4096'; use a number$"),
        ({"bulk_size": "2"}, "^bulk_size: got '2'; use a number or auto$"),
        ({"fanouts": ["3", "2"]}, r"^fanouts: got \['3', '2'\]; use whole numbers$"),
        ({"fanouts": 5}, "^fanouts: input should be a valid tuple; got 5$"),
        ({"batch_norm": "no"}, "^batch_norm: got 'no'; use True or False$"),
        ({"layer_norm": 1}, "^layer_norm: got 1; use True or False$"),
        ({"bulk_size": 0}, "bulk_size"),
        ({"batch_size": True}, "^batch_size: got True; use a number$"),
        ({"lr": True}, "^lr: got True; use a number$"),
        ({"virtual_ranks": False}, "^virtual_ranks: got False; use a number$"),
        ({"fanouts": [True, 3]}, r"^fanouts must be whole numbers; got \[True, 3\]$"),
        ({"layers": 2, "fanouts": (5,)}, "2 layers need as many fanouts; got 5"),
        ({"resume": "auto"}, "give checkpoint='DIR'"),
        ({"checkpoint_every": 5}, "give checkpoint='DIR'"),
    ],
)
def test_what_does_not_fit_is_said_in_one_sentence(options, message):
    with pytest.raises(UsageError, match=message):
        TrainConfig.of(**options)


def test_numbers_of_numpy_and_lists_in_one_text_are_taken():
    config = TrainConfig.of(fanouts="3,2", epochs=np.int64(3), lr=np.float32(0.5), batch_norm=np.bool_(True), bulk_size="auto", layers=None)
    assert (config.fanouts, config.epochs, config.lr, config.batch_norm, config.bulk_size) == ((3, 2), 3, 0.5, True, "auto")
    assert TrainConfig.of(fanouts=np.array([3, 2]), sampler_options={"replace": True}).fanouts == (3, 2)


# Beside the methods, those in which messages or computation were seen to change with the option.
READ_BY = {
    "exchange": ("rows", {"sync"}),
    "form": ("naive", {"full", "bns", "adaqp", "cofree"}),
    "overlap": (False, {"full", "bns", "adaqp", "grappa"}),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("option", READ_BY)
def test_what_travels_is_an_option_of_methods_that_send_it(option, method):
    value, readers = READ_BY[option]
    TrainConfig.of(method=method, **{option: TrainConfig.model_fields[option].default})
    if method in readers:
        assert getattr(TrainConfig.of(method=method, **{option: value}), option) == value
        return
    with pytest.raises(UsageError, match=f"^{option} is for .*; got {option} {value} with method '{method}': leave it out$"):
        TrainConfig.of(method=method, **{option: value})


@pytest.mark.parametrize(("method", "asked", "options"), [
    *((name, {"evaluate": "sampled"}, {"exchange": "rows"}) for name in ("full", "bns", "adaqp", "cofree", "grappa")),
    ("grappa", {"full_graph": True}, {"form": "naive"}), ("retexo", {"refine": 1}, {"overlap": False}),
])  # fmt: skip
def test_some_runs_of_other_methods_send_it_too(method, asked, options):
    TrainConfig.of(method=method, **asked, **options)
    with pytest.raises(UsageError, match="leave it out"):
        TrainConfig.of(method=method, **options)


def test_averages_score_without_exchange():
    with pytest.raises(UsageError, match="exchange is for"):
        TrainConfig.of(method="llcg", evaluate="sampled", exchange="rows")


def test_free_fields_are_fields_and_do_not_decide_what_is_computed():
    free = [name for group in TrainConfig.groups() for name in group.free]
    assert TrainConfig.model_fields.keys() >= set(free)
    assert not TrainConfig.of().computed().keys() & set(free)
    assert TrainConfig.of(epochs=3, bulk_size=2, threads=1).computed() == TrainConfig.of(epochs=9).computed()
    assert TrainConfig.of(lr=0.1).computed() != TrainConfig.of().computed()


def test_samplers_are_those_of_the_table():
    """`config` lies below `samplers`, so it names them again."""
    assert get_args(SamplingOptions.model_fields["sampler"].annotation) == tuple(SAMPLERS)


@pytest.mark.parametrize("name", METHODS)
def test_options_of_a_method_are_those_that_the_table_names(name):
    assert {group for group in TrainConfig.groups() if name in group.methods} == set(METHODS[name].options)


def test_options_and_methods_are_read_without_torch():
    code = "import sys; from bulksample.methods.config import TrainConfig; TrainConfig.of(method='llcg'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_files_may_be_paths():
    assert TrainConfig.of(checkpoint=Path("runs") / "a").checkpoint == "runs/a"
