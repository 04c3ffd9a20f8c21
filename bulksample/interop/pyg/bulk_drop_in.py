"""Bulk sampling for the drop-in loaders whose mini-batches are a `SamplerOutput`: torch_geometric slices the attributes of a batch."""

from __future__ import annotations

import copy
import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import torch
from torch_geometric.data import Data
from torch_geometric.sampler import HeteroSamplerOutput
from torch_geometric.sampler.base import SubgraphType

from ...distributed.comm.base import Comm
from ...errors import UsageError
from ..tensors import FeatureGather, can_gather
from .drop_in import DropInLoader
from .sampler import BulkSampler
from .seed_sampler import STRIDE, Sampled
from .user_order import called_positions


class BulkDropIn(DropInLoader):
    """Bulk sampling for subclasses of `NodeLoader` and `LinkLoader`; see `DropInLoader`."""

    _sampler: BulkSampler
    data: Any
    input_data: Any
    filter_per_worker: bool
    transform: Callable[[Data], Any] | None
    transform_sampler_output: Callable[[Any], Any] | None

    def set_up(self, sampler: BulkSampler, bulk_size: int | Literal["auto"], memory_budget: int | None, options: dict[str, Any]) -> None:
        """Keep the options that `DataLoader` does not have; see `DropInLoader.set_up_epochs`."""
        self._gather, self._sampler = FeatureGather(), sampler
        self.set_up_epochs(sampler.stream, bulk_size, memory_budget, options, sampler.comm, sampler.grid is not None, sampler.seeded)

    @abstractmethod
    def _sample(self, inputs: list[Any], ids: list[int], epoch: int) -> Sequence[Sampled]:
        """Sample the mini-batches with these ids from their examples."""

    @property
    def _threads(self) -> int:
        return self.num_workers if self.filter_per_worker else 0

    def _bulk(self, indices: list[Any], ids: list[int], epoch: int) -> list[Any]:
        return list(self._sample([self.input_data[torch.as_tensor(index)] for index in indices], ids, epoch))

    def __call__(self, index: Any) -> Any:
        """Return the batch of some examples, named by their positions or by a mask of shape (m,)."""
        return super().__call__(called_positions(index, len(self.dataset)))  # type: ignore[misc]  # of torch_geometric's loader

    def _finished(self, sampled: Sampled) -> Any:
        return self.filter_fn(sampled)

    def _describe(self) -> dict[str, Any]:
        return {"inputs": hashed(vars(self.input_data)), **self._sampler.describe()}

    def filter_fn(self, out: Sampled) -> Any:
        """Build a batch: torch_geometric slices the attributes, this class adds the rest, then the user's transform runs.

        torch_geometric sees features that `FeatureGather` gathers as matrices without columns.
        """
        ours = {} if self.transform_sampler_output or isinstance(out, HeteroSamplerOutput) else dict(self._gathered())
        plain = copy.copy(self)
        plain.transform, plain.data = None, copy.copy(self.data)
        for key, x in ours.items():
            plain.data[key] = x[:, :0]
        batch = super(DropInLoader, plain).filter_fn(out)  # type: ignore[misc]  # the method of torch_geometric's loader
        for key, x in ours.items():
            batch[key] = self._gather(x, out.node.numpy())
        batch = self._completed(batch, out)
        return batch if self.transform is None else self.transform(batch)

    def _gathered(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the features that `FeatureGather` gathers; a feature store gathers its own."""
        if isinstance(self.data, Data):
            yield from ((key, x) for key, x in self.data if can_gather(x) and self.data.is_node_attr(key))

    def _completed(self, batch: Any, out: Sampled) -> Any:
        """Add attributes that torch_geometric does not add; subclasses override this."""
        return batch


def hashed(examples: dict[str, Any]) -> str:
    """Return the SHA-256 of named tensors and other values."""
    sha = hashlib.sha256()
    for name, value in sorted(examples.items()):
        array = value.detach().cpu().contiguous().numpy() if isinstance(value, torch.Tensor) else None
        sha.update(f"{name} {value}".encode() if array is None else f"{name} {array.dtype.str} {array.shape}".encode() + array.tobytes())
    return sha.hexdigest()


def sampler_for(
    user_sampler: Any, data: Any, num_neighbors: Any, subgraph_type: SubgraphType | str, directed: bool, *, seeds: Any, comm: Comm | None,
    grid: int | None, **options: Any,
) -> BulkSampler:  # fmt: skip
    """Return the user's `neighbor_sampler`, or make one from the other options; raises `UsageError` for one of another library.

    `seeds` is the number of seeds of a mini-batch, or None if it is not known.
    """
    if user_sampler is not None:
        if not isinstance(user_sampler, BulkSampler):
            raise UsageError(f"neighbor_sampler must be a BulkSampler; got {type(user_sampler).__name__}")
        pairs = {
            "comm": (comm, user_sampler.comm), "grid": (grid, user_sampler.grid), "seed": (options["seed"], user_sampler.stream.seed),
            "time_window": (options.get("time_window"), user_sampler.time_window),
        }  # fmt: skip
        if several := [name for name, (wanted, of_sampler) in pairs.items() if wanted is not None and wanted != of_sampler]:
            raise UsageError(f"{', '.join(several)}: the neighbor_sampler has its own; give them to it, and leave them out here")
        return user_sampler
    stride = STRIDE if seeds is None else max(1, int(seeds))
    return BulkSampler(
        data, num_neighbors, subgraph_type=subgraph_type if directed else "induced", stride=stride, comm=comm, grid=grid, **options
    )


def seeds_of_batch(options: dict[str, Any]) -> Any:
    """Return the batch size of the options of a `DataLoader`; None if a sampler of the user's makes the batches."""
    return None if options.get("batch_sampler") is not None else options.get("batch_size", 1)
