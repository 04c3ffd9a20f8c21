"""Options of samplers have the types that they are described with."""

import numpy as np
import pytest

from bulksample import UsageError, samplers
from bulksample.config.options import sampler_options


@pytest.mark.parametrize(("name", "option", "value", "kind"), [
    ("sage", "replace", "no", "true or false"), ("sage", "weighted", "off", "true or false"), ("sage", "replace", 1, "true or false"),
    ("labor", "layer_dependent", None, "true or false"), ("ladies", "debias", "no", "true or false"),
    ("fastgcn", "renormalise", 0, "true or false"), ("shadow", "layers", "2.5", "a whole number"),
    ("shadow", "layers", True, "a whole number"), ("saint", "walk_length", "x", "a whole number"),
    ("saint", "coverage", 1.5, "a whole number"),
])  # fmt: skip
def test_a_value_of_another_type_is_refused(name, option, value, kind):
    with pytest.raises(UsageError, match=f"^{option} must be {kind}; got {value!r}$"):
        samplers.make(name, (3,), **{option: value})


def test_numbers_of_numpy_are_taken():
    assert samplers.make("saint", np.array([3]), walk_length=np.int64(4)) == samplers.make("saint", (3,), walk_length=4)


@pytest.mark.parametrize("given", ["frontier=new", {"frontier": "new"}, "fanouts=3"])
def test_options_of_their_own_are_named(given):
    with pytest.raises(UsageError, match=r"got (frontier|fanouts), which is an option of its own; use --(frontier|fanouts)$"):
        sampler_options(given)


def test_an_option_given_twice_is_refused():
    with pytest.raises(UsageError, match="got replace twice"):
        sampler_options("replace=true,replace=false")
    assert sampler_options("") == {}
