"""Being asked to stop: SIGTERM and SIGUSR1, as schedulers send them some time before the end."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class StopSignals:
    """Notes SIGTERM and SIGUSR1 while it is entered; the loop finishes its step, writes a checkpoint and leaves."""

    def __init__(self) -> None:
        self.received = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python allows no handlers
            for number in (signal.SIGTERM, signal.SIGUSR1):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = True
