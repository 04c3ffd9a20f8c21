"""Locks that a forked process finds open: a fork takes along locks that are held, but not the threads that would release them."""

from __future__ import annotations

import os
import threading


def process_lock() -> threading.Lock:
    """Return a lock for a module, which a fork waits for. Hold it for a moment, and no other such lock within."""
    lock = threading.Lock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock
