"""The rates of a machine: what a copy and a product count, and the instructions of a processor. The clock is the test's."""

import itertools

import pytest
import torch

from bulksample.training import machine_rates

FLAGS = "processor\t: 0\nflags\t\t: fpu avx2 {}\n\nprocessor\t: 1\nflags\t\t: fpu avx2 {}\n"


@pytest.fixture
def ticking(monkeypatch):
    """A clock that ticks by a second whenever it is read."""
    ticks = itertools.count()
    monkeypatch.setattr(machine_rates.time, "perf_counter", lambda: float(next(ticks)))


@pytest.fixture
def cpuinfo(tmp_path, monkeypatch):
    def planted(text):
        (tmp_path / "cpuinfo").write_text(text)
        monkeypatch.setattr(machine_rates, "_CPUINFO", tmp_path / "cpuinfo")

    return planted


def test_a_copy_counts_reads_and_writes(ticking):
    assert machine_rates.copy_rate(1000) == pytest.approx((4 * 1000 + 4 * 1000) / 1e9)


def test_a_product_counts_a_multiply_add_twice(ticking):
    assert machine_rates.product_rate(8, 32) == pytest.approx(2 * 32 * 8 * 8 / 1e9)


def test_the_copy_of_a_run_needs_memory_and_is_made_once(ticking, monkeypatch):
    monkeypatch.setattr(machine_rates, "COPIED", 1000)
    for free, found in ((3 * 16 * 1000 - 1, None), (3 * 16 * 1000, 12.0)):
        machine_rates._copy_rate_on.cache_clear()
        monkeypatch.setattr(machine_rates, "free_memory", lambda free=free: free)
        monkeypatch.setattr(machine_rates, "copy_rate", iter([12.0]).__next__)
        assert [machine_rates.run_copy_rate(3) for _ in range(2)] == [found, found]
    machine_rates._copy_rate_on.cache_clear()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (FLAGS.format("avx512_bf16", "avx512_bf16"), True), (FLAGS.format("amx_bf16", ""), True), (FLAGS.format("avx512f", ""), False),
        ("processor : 0\nFeatures : fp asimd bf16 i8mm\n", True), ("processor : 0\nFeatures : fp asimd ebf16x\n", False),
        ("processor : 0\nmodel name : with bf16\n", None), ("", None),
    ],
)  # fmt: skip
def test_flags_of_the_processor_tell_of_bf16(cpuinfo, text, found):
    cpuinfo(text)
    assert machine_rates.has_bf16() is found


def test_a_system_without_flags_is_not_known(tmp_path, monkeypatch):
    monkeypatch.setattr(machine_rates, "_CPUINFO", tmp_path / "nothing")
    assert machine_rates.has_bf16() is None


@pytest.mark.parametrize(("known", "found"), [(True, 2.1), (None, 2.1), (False, None)])
def test_products_in_bf16_are_measured_where_there_may_be_instructions(monkeypatch, known, found):
    rates, asked = {torch.float32: [90.0, 100.0, 80.0], torch.bfloat16: [210.0, 30.0, 200.0]}, []
    monkeypatch.setattr(machine_rates, "product_rate", lambda dtype: asked.append(dtype) or rates[dtype].pop(0))
    monkeypatch.setattr(machine_rates, "run_copy_rate", lambda: 12.34)
    monkeypatch.setattr(machine_rates, "has_bf16", lambda: known)
    assert machine_rates.describe_rates() == {
        "threads": torch.get_num_threads(), "copy_gb_per_second": 12.3, "fp32_gflop_per_second": 100.0, "bf16_over_fp32": found,
    }  # fmt: skip
    assert (torch.bfloat16 in asked) == (known is not False), "emulated products may take minutes"
    assert known is False or asked == [torch.float32, torch.bfloat16] * 3
