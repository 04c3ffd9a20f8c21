"""Targets with a fault each, for the fuzzer to find: the seed does no harm, and a change to it does."""

import time

from sweep.fuzz_target import Target


def raises(data):
    if data != b"seed":
        raise KeyError("boom")


def hangs(data):
    while data != b"seed":
        time.sleep(0.01)


def hoards(data, held=[]):  # noqa: B006
    if data != b"seed":
        held.append(bytearray(b"\1") * 2**29)


def refuses(data):
    raise ValueError("as documented")


def target(attempt):
    return Target(lambda: [b"seed"], lambda place: attempt, (ValueError,))


TARGETS = {attempt.__name__: target(attempt) for attempt in (raises, hangs, hoards, refuses)}
