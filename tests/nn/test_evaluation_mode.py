"""A model is in evaluation mode within the block, and each module in its own mode after it."""

import pytest
from torch import nn

from bulksample.nn.model import evaluation_mode


def test_each_module_returns_to_its_own_mode_also_after_an_error():
    model = nn.Sequential(nn.Dropout(), nn.Sequential(nn.BatchNorm1d(3)))
    model[1].eval()  # kept frozen by the user

    def failing():
        with evaluation_mode(model):
            assert not any(module.training for module in model.modules())
            raise RuntimeError("no forward pass")

    with pytest.raises(RuntimeError, match="no forward pass"):
        failing()
    assert [module.training for module in model.modules()] == [True, True, False, False]
