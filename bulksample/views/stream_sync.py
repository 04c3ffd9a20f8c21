"""What those who make minibatches and those who use them tell each other; on a host nothing."""

from __future__ import annotations

from collections.abc import Sequence

from ..minibatch import MiniBatch


class StreamSync:
    """Between those who make minibatches and those who use them. On a host nothing has to be said."""

    def handed(self, bulk: list[MiniBatch]) -> list[MiniBatch]:
        """A bulk as it is handed over, by the thread that sampled it."""
        return bulk

    def taken(self, minibatches: Sequence[MiniBatch | None]) -> None:
        """They are going to be used from now on."""

    def used(self, minibatch: MiniBatch | None) -> None:
        """All that uses it has been started, and nothing more will."""
