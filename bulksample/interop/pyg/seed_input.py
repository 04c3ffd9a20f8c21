"""Input nodes and links with more than torch_geometric's classes hold: the starts of their windows, or several types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch_geometric.sampler import EdgeSamplerInput, NodeSamplerInput

from ...graph import NODE


class SeedInput(NodeSamplerInput):
    """Input nodes with more than torch_geometric's class holds: the starts of their windows, or several types.

    Attributes
    ----------
    start : int64, shape (m,), optional
    kinds : int64, shape (m,), optional
        The place of the type of each node in `names`; without it all have the type `input_type`.
    names : tuple of str
    """

    start: torch.Tensor | None = None
    kinds: torch.Tensor | None = None
    names: tuple[str, ...] = ()

    def __init__(
        self, input_id: torch.Tensor | None, node: torch.Tensor, time: torch.Tensor | None = None, input_type: str | None = None,
        start: torch.Tensor | None = None, kinds: torch.Tensor | None = None, names: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        super().__init__(input_id, node, time, input_type)
        if start is not None:  # a state names what there is
            self.start = start
        if kinds is not None:
            self.kinds, self.names = kinds, names

    @staticmethod
    def joined(parts: Mapping[str, SeedInput]) -> SeedInput:
        """Return the nodes of several types as one list, type after type."""

        def joined(columns: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
            return None if any(values is None for values in columns) else torch.cat([values for values in columns if values is not None])

        every = list(parts.values())
        named = [torch.arange(len(part.node)) if part.input_id is None else part.input_id for part in every]
        kinds = torch.arange(len(every)).repeat_interleave(torch.tensor([len(part.node) for part in every], dtype=torch.long))
        times, starts = joined([part.time for part in every]), joined([part.start for part in every])
        return SeedInput(torch.cat(named), torch.cat([part.node for part in every]), times, None, starts, kinds, tuple(parts))

    def __getitem__(self, index: Any) -> SeedInput:
        at = torch.as_tensor(index, dtype=torch.long)
        time, start, kinds = (None if values is None else values[at] for values in (self.time, self.start, self.kinds))
        return SeedInput(at if self.input_id is None else self.input_id[at], self.node[at], time, self.input_type, start, kinds, self.names)

    def by_type(self) -> dict[str, SeedInput]:
        """Return the nodes of each type, in the order of `names`."""
        if self.kinds is None:
            return {NODE if self.input_type is None else str(self.input_type): self}
        parts = {}
        for place, name in enumerate(self.names):
            part = self[(self.kinds == place).nonzero().view(-1)]
            parts[name] = SeedInput(part.input_id, part.node, part.time, name, part.start)
        return parts


class LinkInput(EdgeSamplerInput):
    """Links with the starts of their windows.

    Attributes
    ----------
    start : int64, shape (m,)
    """

    start: torch.Tensor

    def __init__(self, links: EdgeSamplerInput, start: torch.Tensor) -> None:
        super().__init__(links.input_id, links.row, links.col, links.label, links.time, links.input_type)
        self.start = start

    def __getitem__(self, index: Any) -> LinkInput:
        at = torch.as_tensor(index, dtype=torch.long)
        return LinkInput(super().__getitem__(at), self.start[at])


def by_type(index: NodeSamplerInput) -> dict[str, NodeSamplerInput]:
    """Return the nodes of each type; an input of torch_geometric has one type."""
    if isinstance(index, SeedInput):
        return dict(index.by_type())
    return {NODE if index.input_type is None else str(index.input_type): index}
