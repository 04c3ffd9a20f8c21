"""Configurations: typed, bounded, and helpful about what does not fit."""

import pytest

from bulksample import UsageError
from bulksample.config.train import DEFAULT_FANOUTS, FREE, TrainConfig


def test_layers_follow_fanouts_and_fanouts_follow_layers():
    assert TrainConfig.of().fanouts == DEFAULT_FANOUTS
    assert TrainConfig.of(fanouts=(4, 3)).layers == 2
    assert TrainConfig.of(layers=2).fanouts == (15, 10)
    assert TrainConfig.of(layers=5).fanouts == (15, 10, 5, 5, 5)
    assert TrainConfig.of(layers=None, fanouts=None) == TrainConfig.of()
    assert TrainConfig.of(sampler="shadow", layers=4, fanouts=(5, 5)).layers == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hiden": 3}, "did you mean 'hidden'"),
        ({"xyzzy": 3}, "there is no option 'xyzzy'; method, seed, model"),
        ({"hidden": 0}, r"hidden: input should be greater than or equal to 2; got 0"),
        ({"lr": 0.0}, "lr: input should be greater than 0"),
        ({"dropout": 1.0}, "dropout: input should be less than 1"),
        ({"model": "gin"}, "model: input should be 'sage', 'sage-pool', 'gcn' or 'gat'; got 'gin'"),
        ({"epochs": "many"}, "epochs: input should be a valid integer"),
        ({"bulk_size": 0}, "bulk_size"),
        ({"layers": 2, "fanouts": (5,)}, "2 layers need as many fanouts; got 5"),
        ({"resume": "auto"}, "give --checkpoint DIR"),
        ({"checkpoint_every": 5}, "give --checkpoint DIR"),
    ],
)
def test_what_does_not_fit_is_said_in_one_sentence(options, message):
    with pytest.raises(UsageError, match=message):
        TrainConfig.of(**options)


def test_free_fields_are_fields_and_do_not_decide_what_is_computed():
    assert TrainConfig.model_fields.keys() >= FREE
    assert TrainConfig.of(epochs=3, bulk_size=2, threads=1).computed() == TrainConfig.of(epochs=9).computed()
    assert TrainConfig.of(lr=0.1).computed() != TrainConfig.of().computed()
