"""Arrays of mini-batches and rows of features as torch tensors. torch is imported when the first of them is converted."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends import on_host
from ..errors import UsageError, instead_of
from ..graph.minibatch import MiniBatch
from ..nn.gather import RowPool, gather_rows
from .columns import each

if TYPE_CHECKING:
    import torch

OUT = ("torch", "numpy")


def device_for(out: str | None) -> Any:
    """Return the device that stands for ``Loader(out=...)``: "cpu" for tensors, None for numpy; by default tensors if torch is installed.

    Raises `UsageError` if there is no such output, or torch is asked for and not installed.
    """
    if out is not None and out not in OUT:
        raise UsageError(f"out: got {out!r}; {instead_of(str(out), OUT)}")
    installed = find_spec("torch") is not None
    if out == "torch" and not installed:
        raise UsageError("out: got 'torch', which is not installed; use out='numpy', or pip install 'bulksample[train]'")
    return "cpu" if installed and out != "numpy" else None


def device_of(name: Any) -> torch.device:
    """Return a device of torch; raises `UsageError` if there is none of that name."""
    import torch

    try:
        device = torch.device(name)
    except (RuntimeError, TypeError, ValueError):
        raise UsageError(f"device: got {name!r}, which torch does not know; use 'cpu', 'cuda' or 'cuda:0'") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"device: got {name!r}, but torch sees no GPU; use 'cpu'")
    return device


def converted(value: Any, device: Any) -> Any:
    """Return arrays as tensors on a device, in the tuples and dicts that hold them; None keeps arrays.

    Integers become int64. A writable array on the CPU shares its memory with the tensor; a read-only one is copied. A tensor is moved.
    """
    return value if device is None else each(value, lambda array: _converted(array, device))


def _converted(array: Any, device: Any) -> torch.Tensor:
    import torch

    if isinstance(array, torch.Tensor):
        return array.to(device)
    wide = array.astype(np.int64, copy=False) if array.dtype.kind in "iu" else array
    return torch.from_numpy(wide if wide.flags.writeable else wide.copy()).to(device)


def tensor_blocks(minibatch: MiniBatch, device: Any) -> Any:
    """Return the blocks of a mini-batch as tensor blocks on a device: one for each layer, or dicts of such by relation."""
    from ..nn.dropout import PassNames
    from ..nn.tensor_block import Calls, TensorBlock

    names, layers = PassNames.of(minibatch), enumerate(minibatch.layers, 1)
    if not minibatch.by_type:
        return tuple(TensorBlock(block, device, names, number) for number, of_layer in layers for block in of_layer.values())
    made = []
    for number, of_layer in layers:
        calls = {key[2]: Calls() for key in of_layer}
        made.append({key: TensorBlock(block, device, names, number, key[2], calls[key[2]]) for key, block in of_layer.items()})
    return tuple(made)


def changed_blocks(blocks: Any, change: Callable[[torch.Tensor], torch.Tensor], device: Any) -> Any:
    """Return tensor blocks on a device whose tensors `change` makes of those of others; their dropouts are counted from 0."""
    from ..nn.tensor_block import Calls

    calls: dict[Calls, Calls] = defaultdict(Calls)  # one for all that shared one
    return each(blocks, lambda block: block.changed(change, device, calls))


class _Unlocked:
    """Expose the memory of a read-only array to numpy as writable, and keep the array alive."""

    def __init__(self, array: np.ndarray) -> None:
        interface = dict(array.__array_interface__)
        self.array, self.__array_interface__ = array, {**interface, "data": (interface["data"][0], False)}


def shared(array: np.ndarray, device: Any = "cpu") -> torch.Tensor:
    """Return an array as a tensor; on a CPU it shares its memory, also if the array is read-only (then do not write to it)."""
    import torch

    return torch.from_numpy(array if array.flags.writeable else np.asarray(_Unlocked(array))).to(device)


def weights_of_edges(name: str, values: Any, edges: int) -> np.ndarray | None:
    """Return the weights of edges as float64, shape (m,), or None if there are none; raises `UsageError` for another number of them."""
    import torch

    if values is None:
        return None
    try:
        weights = torch.as_tensor(values).detach().cpu().double().numpy()
    except (TypeError, ValueError, RuntimeError):
        raise UsageError(f"weight {name!r}: got a {type(values).__name__}; use a tensor with one number for each edge") from None
    if weights.shape not in ((edges,), (edges, 1)):
        raise UsageError(f"weight {name!r} must have one number for each of the {edges} edges; its shape is {weights.shape}")
    return np.asarray(weights.reshape(-1))


def can_gather(x: Any) -> bool:
    """Return True for features that `FeatureGather` can gather: a contiguous float32 matrix on the host that needs no gradient."""
    import torch

    plain = isinstance(x, torch.Tensor) and x.device.type == "cpu" and x.layout is torch.strided and not x.requires_grad
    return plain and x.dim() == 2 and x.dtype == torch.float32 and x.is_contiguous()


class FeatureGather:
    """Gathers rows of features on all threads of torch, for each calling thread into memory that is reused once no batch refers to it."""

    def __init__(self) -> None:
        self._own = threading.local()

    def __reduce__(self) -> tuple[Any, ...]:
        return FeatureGather, ()

    def __call__(self, x: torch.Tensor, vertices: np.ndarray) -> torch.Tensor:
        """Return rows of x: float32, shape (N, f)."""
        import torch

        if not hasattr(self._own, "pool"):
            self._own.pool = RowPool()
        return torch.from_numpy(gather_rows(x.numpy(), vertices, pool=self._own.pool, backend=on_host(torch.get_num_threads())))
