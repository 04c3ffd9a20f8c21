"""The free memory: what the machine has, within the limit of the control group."""

import os

import pytest

from bulksample import free_memory as measured
from bulksample.free_memory import free_memory


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A machine with 1000 KiB available, and a process in the control group /job."""
    (tmp_path / "job").mkdir()
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable: 1000 kB\n")
    (tmp_path / "own").write_text("0::/job\n")
    (tmp_path / "job/memory.stat").write_text("anon 5\ninactive_file 30\nactive_file 4\n")
    (tmp_path / "job/memory.current").write_text("200\n")
    monkeypatch.setattr(measured, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(measured, "_GROUPS", tmp_path)
    monkeypatch.setattr(measured, "_OWN_GROUP", tmp_path / "own")
    return tmp_path


@pytest.mark.parametrize(("limit", "free"), [("max", 1024_000), ("1000", 834), ("100", 0), ("9999999", 1024_000)])
def test_it_is_that_of_the_machine_within_the_limit_of_the_group(system, limit, free):
    (system / "job/memory.max").write_text(limit)
    assert free_memory() == free


def test_without_proc_it_is_the_unused_memory(system):
    (system / "meminfo").unlink()
    assert 0 < free_memory() <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_it_is_at_most_that_of_this_machine():
    assert 0 < free_memory() <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
