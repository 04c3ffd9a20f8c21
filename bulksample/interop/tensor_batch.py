"""Mini-batches as torch tensors on one device: each array of a batch is converted when it is first read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..minibatch import Block

if TYPE_CHECKING:
    import torch

    from ..graph import Key
    from ..nn.tensor_block import TensorBlock
    from .dialects import EdgeLayout


class _Converted:
    """An attribute of a batch on the device: arrays, or tuples and dicts of them, as tensors, and blocks as tensor blocks."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, batch: OnDevice, owner: type) -> Any:
        value = batch.__dict__[self.name] = _converted(getattr(batch.batch, self.name), batch.device)
        return value


def _converts() -> Any:
    """Return an attribute that is converted when it is first read; type checkers take it for what its annotation says."""
    return _Converted()


@dataclass(frozen=True, eq=False)
class OnDevice:
    """A batch as torch tensors on one device; a pickle or a copy converts anew.

    Parameters
    ----------
    batch : Batch or HeteroBatch
    device : torch.device, or what makes one
    """

    batch: Any
    device: Any

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.batch, self.device)

    @property
    def id(self) -> int:
        """The number of the mini-batch within its epoch."""
        return int(self.batch.id)

    @property
    def epoch(self) -> int:
        """The epoch the mini-batch belongs to."""
        return int(self.batch.epoch)

    @property
    def repeated(self) -> bool:
        """`Batch.repeated`."""
        return bool(self.batch.repeated)

    def digest(self) -> str:
        """Return `Batch.digest`."""
        return str(self.batch.digest())


class TensorBatch(OnDevice):
    """A `Batch` as torch tensors on one device.

    Attributes
    ----------
    vertices, seeds, seed_rows, x, y : torch.Tensor
        The arrays of `Batch`; integers as int64.
    seed_weights : torch.Tensor, optional
    e_id, edge_attr : tuple of torch.Tensor
        One per block, as in `Batch`.
    blocks : tuple of TensorBlock
        The sampled edges, one block a layer, from the input layer to the output layer.
    """

    vertices: torch.Tensor = _converts()
    seeds: torch.Tensor = _converts()
    seed_rows: torch.Tensor = _converts()
    seed_weights: torch.Tensor | None = _converts()
    x: torch.Tensor = _converts()
    y: torch.Tensor = _converts()
    e_id: tuple[torch.Tensor, ...] = _converts()
    edge_attr: tuple[torch.Tensor, ...] = _converts()
    blocks: tuple[TensorBlock, ...] = _converts()

    def to_pyg(self, layout: EdgeLayout = "edge_index") -> Any:
        """Return `Batch.to_pyg` on this device."""
        from .dialects import to_pyg

        return to_pyg(self, layout)

    def to_dgl(self) -> tuple[torch.Tensor, torch.Tensor, list[Any]]:
        """Return `Batch.to_dgl` on this device."""
        from .dialects import to_dgl

        return to_dgl(self)


class TensorHeteroBatch(OnDevice):
    """A `HeteroBatch` as torch tensors on one device.

    Attributes
    ----------
    vertices, seeds, x_dict, y_dict : dict of torch.Tensor by type
        The arrays of `HeteroBatch`; integers as int64.
    edge_index_dict, e_id_dict, edge_attr_dict : dict of torch.Tensor by (source, name, destination)
        Of the input layer.
    e_id, edge_attr : tuple of dicts of torch.Tensor by (source, name, destination)
        One dict a layer.
    blocks : tuple of dicts of TensorBlock by (source, name, destination)
        From the input layer to the output layer.
    """

    vertices: dict[str, torch.Tensor] = _converts()
    seeds: dict[str, torch.Tensor] = _converts()
    x_dict: dict[str, torch.Tensor] = _converts()
    y_dict: dict[str, torch.Tensor] = _converts()
    edge_index_dict: dict[Key, torch.Tensor] = _converts()
    e_id_dict: dict[Key, torch.Tensor] = _converts()
    edge_attr_dict: dict[Key, torch.Tensor] = _converts()
    e_id: tuple[dict[Key, torch.Tensor], ...] = _converts()
    edge_attr: tuple[dict[Key, torch.Tensor], ...] = _converts()
    blocks: tuple[dict[Key, TensorBlock], ...] = _converts()

    def to_pyg(self, layout: EdgeLayout = "edge_index") -> Any:
        """Return `HeteroBatch.to_pyg` on this device."""
        from .typed_dialects import to_pyg

        return to_pyg(self, layout)

    def to_dgl(self) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], list[Any]]:
        """Return `HeteroBatch.to_dgl` on this device."""
        from .typed_dialects import to_dgl

        return to_dgl(self)


def _converted(value: Any, device: Any) -> Any:
    """Return arrays as tensors and blocks as tensor blocks on a device, in the tuples and dicts that hold them."""
    if isinstance(value, Mapping):
        return {name: _converted(part, device) for name, part in value.items()}
    if isinstance(value, tuple):
        return tuple(_converted(part, device) for part in value)
    if isinstance(value, Block):
        from ..nn.tensor_block import TensorBlock

        return TensorBlock(value, device)
    return None if value is None else _tensor(value, device)


def _tensor(array: NDArray[Any], device: Any) -> torch.Tensor:
    """Return an array as a tensor on a device: integers as int64; read-only arrays are copied."""
    import torch

    wide = array.astype(np.int64, copy=False) if array.dtype.kind in "iu" else array
    return torch.from_numpy(wide if wide.flags.writeable else wide.copy()).to(device)


def device_of(given: Any) -> torch.device:
    """Return a device of torch; raises `UsageError` if there is none of that name."""
    import torch

    try:
        device = torch.device(given)
    except (RuntimeError, TypeError, ValueError):
        raise UsageError(f"device: got {given!r}, which torch does not know; use 'cpu', 'cuda' or 'cuda:0'") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"device: got {given!r}, but torch sees no GPU; use 'cpu'")
    return device
