"""Names of other libraries are answered with ours, in Python, in files and on command lines."""

import re

import pytest
from typer.main import get_command

from bulksample import UsageError
from bulksample.config.file import read
from bulksample.config.foreign import FOREIGN, ours
from bulksample.methods.config import TrainConfig


def test_every_suggestion_is_an_option_and_no_foreign_name_is():
    assert FOREIGN.keys() <= TrainConfig.model_fields.keys()
    foreign = [name for names in FOREIGN.values() for name in names]
    assert len(foreign) == len(set(foreign))
    assert not set(foreign) & TrainConfig.model_fields.keys()


@pytest.mark.parametrize(("theirs", "suggested"), [
    ("grad_clip", "clip_norm"), ("clip_grad_norm", "clip_norm"), ("gradient_clip_val", "clip_norm"), ("max_grad_norm", "clip_norm"),
    ("scheduler", "lr_schedule"), ("lr_scheduler", "lr_schedule"), ("warmup_steps", "warmup"), ("learning_rate", "lr"),
    ("num_neighbors", "fanouts"), ("bs", "batch_size"), ("hidden_channels", "hidden"), ("hiddenChannels", "hidden"),
    ("num_epochs", "epochs"), ("batchSize", "batch_size"), ("hiden", "hidden"),
])  # fmt: skip
def test_names_of_others_suggest_ours(theirs, suggested, tmp_path):
    with pytest.raises(UsageError, match=f"^there is no option '{theirs}'; did you mean '{suggested}'\\?$"):
        TrainConfig.of(**{theirs: 3})
    (tmp_path / "run.yaml").write_text(f"{theirs}: 3\n")
    with pytest.raises(UsageError, match=f"run.yaml:1: there is no option '{theirs}'; did you mean '{suggested}'\\?"):
        read(tmp_path / "run.yaml", TrainConfig)


ON_ALL_RANKS = "which counts the mini-batches of a step on all ranks, not on each"
SHARE = "which is a share of lr and not a rate"


@pytest.mark.parametrize(("theirs", "suggested", "told"), [
    ("accumulate", "virtual_ranks", ON_ALL_RANKS), ("accumulate_grad_batches", "virtual_ranks", ON_ALL_RANKS),
    ("gradient_accumulation_steps", "virtual_ranks", ON_ALL_RANKS), ("gradientAccumulationSteps", "virtual_ranks", ON_ALL_RANKS),
    ("eta_min", "lr_end_factor", SHARE), ("min_lr", "lr_end_factor", SHARE), ("lr_min", "lr_end_factor", SHARE),
    ("lr_end", "lr_end_factor", SHARE), ("minLr", "lr_end_factor", SHARE),
    ("warmup_ratio", "warmup", "which counts steps, or epochs if written as 3epochs, and is no share of the run"),
    ("warmup_epochs", "warmup", "which counts steps, or epochs if written as 3epochs"),
    ("limit_train_batches", "steps_per_epoch",
     "which is a number of steps and no share of them; seeds go on where the epoch before ended"),
])  # fmt: skip
def test_a_name_of_another_unit_is_answered_with_the_difference(theirs, suggested, told, tmp_path):
    message = f"there is no option '{theirs}'; did you mean '{suggested}', {told}?"
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        TrainConfig.of(**{theirs: 0.1})
    (tmp_path / "run.yaml").write_text(f"{theirs}: 0.1\n")
    with pytest.raises(UsageError, match=f"run.yaml:1: {re.escape(message)}$"):
        read(tmp_path / "run.yaml", TrainConfig)


def test_a_name_of_the_same_unit_has_no_difference():
    for same in ("end_factor", "min_lr_rate", "warmup_steps", "num_steps"):
        with pytest.raises(UsageError, match=r"did you mean '\w+'\?$"):
            TrainConfig.of(**{same: 0.1})


@pytest.mark.parametrize(("flag", "suggested"), [
    ("--accumulate", f"--virtual-ranks, {ON_ALL_RANKS}"), ("--eta-min", f"--lr-end-factor, {SHARE}"),
    ("--grad-clip", "--clip-norm"), ("--lr-scheduler", "--lr-schedule"), ("--bs", "--batch-size"),
    ("--num-neighbors", "--fanouts"), ("--hiden", "--hidden"),
])  # fmt: skip
def test_flags_of_others_suggest_ours(flag, suggested):
    from bulksample.cli.app import app
    from bulksample.cli.configured import ParseError, explain

    with pytest.raises(ParseError, match="No such option") as error:
        get_command(app).main(["train", "g", flag, "3"], prog_name="bulksample", standalone_mode=False)
    assert explain(error.value) == f"No such option: {flag}; did you mean {suggested}?"


def test_only_known_options_are_suggested():
    assert ours("grad_clip", ["clip_norm"]) == "clip_norm"
    assert ours("grad_clip", ["hidden"]) is None
    assert ours("clip_norm", ["clip_norm"]) is None
