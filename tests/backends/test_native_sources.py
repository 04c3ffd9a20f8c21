"""An extension that was compiled from other sources is not used, and the reason says what to do."""

import importlib
import re

import pytest
from engines import engine

from bulksample import BackendUnavailable, backends
from bulksample.backends import native
from bulksample.backends.cuda import nvrtc
from bulksample.backends.sources import kernel_directory, native_digest


@pytest.fixture
def edited(monkeypatch):
    """The extension as it is, and other sources beside the package."""
    engine("native")  # skips where it is missing
    monkeypatch.setattr(importlib.import_module("bulksample._native"), "sources", "0" * 16, raising=False)
    caches = native.unavailable_because, nvrtc._driver
    for cached in caches:
        cached.cache_clear()
    yield
    monkeypatch.undo()
    for cached in caches:
        cached.cache_clear()


def test_a_stale_extension_is_refused(edited):
    assert "compiled from other sources than those in" in backends.why_not("native")
    with pytest.raises(BackendUnavailable, match=r"rebuild: pip install -e \."):
        backends.make("native")
    with pytest.warns(UserWarning, match=r"launched one by one, .*rebuild: pip install -e"):
        assert nvrtc._driver() is None


def test_every_source_is_in_one_unit():
    """Without this, an extension that lacks a file would be linked, and not be loaded."""
    units = [path.read_text() for path in kernel_directory().glob("unit_*.cpp")]
    included = [name for unit in units for name in re.findall(r'^#include "(native\w*\.cpp)"$', unit, re.MULTILINE)]
    assert units
    assert sorted(included) == sorted(path.name for path in kernel_directory().glob("native*.cpp"))


def test_the_digest_changes_with_every_file(tmp_path):
    written = {
        "native.cpp": '#include "native.h"\n',
        "native_more.cpp": "",
        "unit_all.cpp": "",
        "native.h": '// of all\n#include "philox.h"\n',
        "philox.h": "",
    }
    for name, text in (written | {"draw.cu": "", "device.h": ""}).items():
        (tmp_path / name).write_text(text)
    before = native_digest(tmp_path)
    for name in ("native_more.cpp", "unit_all.cpp", "philox.h", "native.h"):
        (tmp_path / name).write_text(written[name] + "// two")
        before, last = native_digest(tmp_path), before
        assert before != last
    for name in ("draw.cu", "device.h"):
        (tmp_path / name).write_text("kernels, and headers of kernels alone, are compiled at their first use")
    assert native_digest(tmp_path) == before


def test_this_extension_is_compiled_from_the_sources_beside_it():
    assert native._stale(native_digest(kernel_directory())) is None
    assert native._stale("") is None  # built by hand
