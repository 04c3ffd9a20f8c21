"""Bias, relu and dropout in one pass over device arrays, their gradient, and dropout of sparse entries: csrc/epilogue.cu.

Matrices of float32 are laid out flat, R rows of h numbers. A `Mask` holds device arrays here. Nothing waits for the device.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dropout import BIAS_ROWS, LANES, PARTS, Mask
from .device import CudaDevice
from .products import row_lanes

_TILE_LANES = 4  # lanes that draw for a row where columns are summed, at most


def epilogue(device: CudaDevice, z: Any, width: int, bias: Any, relu: bool, mask: Mask | None, out: Any) -> None:
    """Write y = m act(z + b) into `out`, which may be z; see `Backend.epilogue`."""
    rows, blocks = len(z) // max(width, 1), -(-width // LANES)
    lanes = row_lanes(blocks)
    work = rows * lanes * -(-blocks // lanes)
    device.start(f"epilogue_{_words(device, width, z, bias, out)}", work, z, bias, int(relu), *_names(mask), rows, width, out)


def epilogue_gradient(device: CudaDevice, grad: Any, y: Any, width: int, mask: Mask | None, bias: bool, out: Any) -> Any:
    """Write dL/dz into `out`, which may be `grad`, and return dL/db or None; see `Backend.epilogue_gradient`."""
    rows, blocks = len(grad) // max(width, 1), -(-width // LANES)
    parts, lanes = -(-rows // BIAS_ROWS), min(row_lanes(blocks), _TILE_LANES)
    sums = device.empty(parts * width, np.float32) if bias else None
    name = f"epilogue_gradient_{_words(device, width, grad, y, out)}"
    device.blocks(name, parts * -(-blocks // lanes), grad, y, *_names(mask), rows, width, out, sums)
    if not bias:
        return None
    total = device.empty(width, np.float32)
    device.blocks("bias_sums", blocks, sums, parts, width, total)
    return total


def drop_entries(device: CudaDevice, indptr: Any, indices: Any, values: Any, mask: Mask) -> Any:
    """Return the entries of a sparse matrix after dropout; see `Backend.drop_entries`."""
    out = device.empty(len(values), np.float32)
    device.walk("drop_entries", len(values), indptr, indices, values, *_names(mask), len(indptr) - 1, out)
    return out


def _names(mask: Mask | None) -> tuple[Any, ...]:
    return (0, 0, None, None, PARTS) if mask is None else tuple(mask)


def _words(device: CudaDevice, width: int, *arrays: Any) -> str:
    """Choose the kernel: that of `fours` if rows and arrays are made of 16 bytes."""
    return "ones" if width % 4 or any(device.launch.address(array) % 16 for array in arrays) else "fours"
