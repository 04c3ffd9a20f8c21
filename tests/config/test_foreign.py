"""Names of other libraries are answered with ours, in Python, in files and on command lines."""

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
    ("accumulate", "virtual_ranks"), ("accumulate_grad_batches", "virtual_ranks"), ("gradient_accumulation_steps", "virtual_ranks"),
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


@pytest.mark.parametrize(("flag", "suggested"), [
    ("--accumulate", "--virtual-ranks"), ("--grad-clip", "--clip-norm"), ("--lr-scheduler", "--lr-schedule"), ("--bs", "--batch-size"),
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
