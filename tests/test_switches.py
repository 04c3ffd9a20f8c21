"""`switches` decides by locks, not by time, whether the second call waits for the first: a busy machine weakens no test."""

import importlib.util
import time

import pytest
import switches

SOURCE = """
import threading

class Held:
    def __init__(self):
        self.lock = threading.Lock()

    def say(self, said, name):
        with self.lock:
            said.append(name)
        return name
"""


@pytest.fixture
def held(tmp_path, monkeypatch):
    """A class with a lock, in a package of its own."""
    (tmp_path / "held.py").write_text(SOURCE)
    monkeypatch.setattr(switches, "PACKAGE", str(tmp_path))
    spec = importlib.util.spec_from_file_location("held", tmp_path / "held.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Held


def orders(held, rest):
    """The order in which the two calls speak, for each line that the first stops at; the second rests in one place for a while."""
    found = []

    def setup():
        own, said = held(), []

        def second():
            time.sleep(rest)
            return own.say(said, "second")

        return lambda: own.say(said, "first"), second, lambda *_: found.append(said)

    assert switches.at_every_line(setup, ["held.py"]) == len(found)
    return found


@pytest.mark.parametrize("rest", [0, 0.5], ids=["awake", "at rest"])
def test_the_second_call_ends_first_unless_the_first_holds_its_lock(held, rest):
    before, within, after = ["second", "first"], ["first", "second"], ["first", "second"]
    assert orders(held, rest) == [before, within, after]
    own = held().lock
    assert not isinstance(own, switches._TellingLock)  # the locks of the package are its own again
