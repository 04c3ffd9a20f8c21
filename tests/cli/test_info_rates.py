"""`info` says what this machine's copies and matrix products reach, and whether bf16 pays."""

import sys

import pytest


def test_info_measures_the_rates_of_this_machine(result):
    rates = result("info")["rates"]
    assert rates["threads"] > 0
    assert rates["copy_gb_per_second"] > 0
    assert rates["fp32_gflop_per_second"] > 0
    assert "bf16" in rates["bf16"]
    assert (rates["bf16_over_fp32"] is None) == ("no bf16 instructions" in rates["bf16"])


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (2.1, "bf16 products 2.1 times fp32"), (0.52, "bf16 products 0.5 times fp32; --precision bf16 will not pay"),
        (None, "this processor has no bf16 instructions; --precision bf16 will not pay"),
    ],
)  # fmt: skip
def test_info_says_whether_bf16_pays(result, monkeypatch, ratio, said):
    monkeypatch.setattr("bulksample.training.machine_rates.describe_rates", lambda: {"bf16_over_fp32": ratio})
    assert result("info")["rates"] == {"bf16_over_fp32": ratio, "bf16": said}


def test_info_without_torch_says_what_is_missing(result, monkeypatch):
    for name in ("torch", "bulksample.training.machine_rates"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert result("info")["rates"] == "not measured: torch is missing: pip install 'bulksample[train]'"


def test_info_tells_of_a_torch_that_cannot_be_loaded(result, monkeypatch):
    class Broken:
        def find_spec(self, name, path=None, target=None):
            if name == "bulksample.training.machine_rates":
                raise OSError("libgomp.so.1: cannot open shared object file")

    monkeypatch.delitem(sys.modules, "bulksample.training.machine_rates", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    assert result("info")["rates"] == "not measured: torch cannot be imported (libgomp.so.1: cannot open shared object file)"
