"""Apply bias, activation and dropout after the products of a layer in one pass, by masks that are functions of names.

A mask names its vertices, not the rows of a mini-batch, so it is the same for every number of ranks and threads and on every device. After
relu the result says by its sign what was kept, so no mask is stored; after other activations the backward pass draws it anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from ..backends import on_host
from ..backends.dropout import LANES, PARTS, Mask, kept_parts
from ..backends.reference import Reference
from ..errors import UsageError
from ..graph.minibatch import MiniBatch
from ..rng import MaskSite, Stream
from .aggregate import SparseRows


class RowNames(NamedTuple):
    """The vertices of the whole graph that stand in the rows of a type, and the tree of each where trees are disjoint."""

    vertices: Any  # int32, shape (N,): an array, or a tensor on the device of the model
    trees: Any = None  # int32, shape (N,)


class PassKey(NamedTuple):
    """The part of the name of a mask that all rows of a forward pass share."""

    seed: int
    epoch: int = 0
    minibatch: int = 0
    stage: int = 0  # of a method that trains one network after another


class PassNames:
    """The names of the rows of a forward pass in the random words of dropout.

    They are those of the sources of the first layer, by type in the order of the graph; later layers have the first of them.
    """

    def __init__(self, key: PassKey, rows: Mapping[str, RowNames], kernels: Kernels | None = None) -> None:
        self.key, self.kernels = key, kernels or HostKernels()
        self.rows = {kind: RowNames(*(None if names is None else _as_int32(names) for names in of_type)) for kind, of_type in rows.items()}
        self._stream, self._kinds = Stream(key.seed), {kind: place for place, kind in enumerate(rows)}

    @staticmethod
    def of(minibatch: MiniBatch) -> PassNames:
        """Return the names of the rows of a mini-batch that a sampler has drawn."""
        rows = {kind: RowNames(part.vertices, part.trees) for kind, part in minibatch.rows.items()}
        return PassNames(PassKey(minibatch.seed, minibatch.epoch, minibatch.id), rows)

    def mask(self, p: float, rows: int, layer: int, place: int = 0, kind: str | None = None) -> Mask | None:
        """Return the mask of dropout with probability p on the first rows of a type, by default the only one; None if p is 0.

        `layer` and `place` are those of `MaskSite`. Raises `UsageError` for another p than `kept_parts` takes, or more rows than there are.
        """
        if torch.compiler.is_compiling():  # numbers of numpy cannot be traced
            now = cast(Callable[..., Mask | None], torch.compiler.disable(self._mask))  # type: ignore[no-untyped-call]
            return now(p, rows, layer, place, kind)
        return self._mask(p, rows, layer, place, kind)

    def _mask(self, p: float, rows: int, layer: int, place: int, kind: str | None) -> Mask | None:
        if (kept := kept_parts(p)) == PARTS:
            return None
        kind = kind or next(iter(self.rows))
        vertices, trees = self.rows[kind] = self.kernels.place(self.rows[kind])
        if rows > len(vertices):
            raise UsageError(f"dropout names the vertex of each row: got {rows} rows, of {len(vertices)} vertices; use the rows of a layer")
        words = self._stream.mask_key(MaskSite(layer, place, self._kinds[kind], self.key.stage), self.key.epoch)
        return Mask(words, self.key.minibatch, vertices[:rows], None if trees is None else trees[:rows], kept)


def _as_int32(names: Any) -> Any:
    """Return names as int32: an array for the host, a tensor on another device. Raises `UsageError` if they do not fit."""
    if isinstance(names, torch.Tensor) and names.device.type == "cpu":
        names = names.numpy()
    if names.dtype in (np.int32, torch.int32):
        return names
    if names.dtype not in (np.int64, torch.int64) or (len(names) and not (int(names.min()) >= -(2**31) and int(names.max()) < 2**31)):
        raise UsageError(f"names of rows must be int32; got {names.dtype}: use the vertices of a mini-batch")
    return names.astype(np.int32) if isinstance(names, np.ndarray) else names.int()


class Kernels:
    """The primitives of a device on tensors, as `Backend` defines them: by default torch's operations, on any device."""

    def place(self, names: RowNames) -> RowNames:
        """Copy the names of rows to where the other functions read them."""
        return names

    def take(self, names: np.ndarray, at: Any) -> Any:
        """Return the names at some places, where these are: on the host, or on the device."""
        return names[at]

    def epilogue(self, z: torch.Tensor, bias: torch.Tensor | None, relu: bool, mask: Mask | None, out: torch.Tensor) -> None:
        """Write m act(z + b) into `out`, which may be z."""
        y = z if bias is None else z + bias
        y = F.relu(y) if relu else y
        out.copy_(y if mask is None else _masked(y, mask))

    def gradient(self, grad: torch.Tensor, y: torch.Tensor | None, mask: Mask | None, bias: bool, out: torch.Tensor) -> torch.Tensor | None:
        """Write dL/dz into `out`, and return dL/db if it is wanted."""
        if y is not None:
            scaled = grad if mask is None else grad * float(mask.scale)
            out.copy_(torch.where(y <= 0, torch.zeros((), dtype=grad.dtype, device=grad.device), scaled))
        else:
            out.copy_(grad if mask is None else _masked(grad, mask))
        return out.sum(0) if bias else None

    def drop_entries(self, rows: SparseRows, mask: Mask) -> SparseRows:
        """Return sparse rows without the entries that the mask drops."""
        at = rows.row_index(), rows.column_index()
        trees = 0 if mask.trees is None else _words_of(mask.trees, at[0].device)[at[0]]
        halves = _halves(at[1] // LANES, _words_of(mask.vertices, at[0].device)[at[0]], trees, mask)
        half = halves.gather(1, (at[1] % LANES)[:, None])[:, 0]
        values = rows.weights_or_ones()
        return rows.with_weights(torch.where(half < mask.kept, values * float(mask.scale), torch.zeros_like(values)))


class HostKernels(Kernels):
    """The primitives of the fastest back end of the host, or of the reference for types but float32; torch's for tensors elsewhere."""

    def epilogue(self, z: torch.Tensor, bias: torch.Tensor | None, relu: bool, mask: Mask | None, out: torch.Tensor) -> None:
        if z.device.type != "cpu":
            super().epilogue(z, bias, relu, mask, out)
        else:
            _engine(z).epilogue(z.numpy(), None if bias is None else bias.contiguous().numpy(), relu, mask, out.numpy())

    def gradient(self, grad: torch.Tensor, y: torch.Tensor | None, mask: Mask | None, bias: bool, out: torch.Tensor) -> torch.Tensor | None:
        if grad.device.type != "cpu":
            return super().gradient(grad, y, mask, bias, out)
        total = _engine(grad).epilogue_gradient(grad.numpy(), None if y is None else y.numpy(), mask, bias, out.numpy())
        return None if total is None else torch.from_numpy(total)

    def drop_entries(self, rows: SparseRows, mask: Mask) -> SparseRows:
        values = rows.weights_or_ones()
        if values.device.type != "cpu":
            return super().drop_entries(rows, mask)
        made = _engine(values).drop_entries(rows.indptr, rows.indices, values.numpy(), mask)
        return rows.with_weights(torch.from_numpy(made))


def _engine(tensor: torch.Tensor) -> Any:
    return on_host(torch.get_num_threads()) if tensor.dtype == torch.float32 else Reference()


_HOST = HostKernels()


def epilogue(
    z: torch.Tensor, bias: torch.Tensor | None = None, relu: bool = False, mask: Mask | None = None, kernels: Kernels | None = None,
    reuse: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Compute y = m act(z + b) in one pass, and its gradient in another: shape (R, h), differentiable once in z and b.

    Parameters
    ----------
    z : shape (R, h)
        Half precision is computed and returned in float32.
    bias : shape (h,), optional
        Taken in the type of z.
    relu : bool
        act is relu; else the identity.
    mask : Mask, optional
        Of `PassNames.mask`; by default nothing is dropped.
    kernels : Kernels, optional
        Those of `PassNames`.
    reuse : bool
        Write y over z, of which nothing else may need the values.
    """
    if bias is None and mask is None and not relu:
        return z
    z = z.float() if z.dtype in (torch.float16, torch.bfloat16) else z
    bias = None if bias is None else bias.to(z.dtype)
    return _Epilogue.apply(z, bias, relu, mask, kernels or _HOST, reuse)  # type: ignore[no-any-return, no-untyped-call]


class _Epilogue(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, z: torch.Tensor, bias: torch.Tensor | None, relu: bool, mask: Mask | None, kernels: Kernels, reuse: bool
    ) -> torch.Tensor:
        reuse = reuse and z.is_contiguous() and not z._is_view()
        y = z if reuse else torch.empty(z.shape, dtype=z.dtype, device=z.device)
        kernels.epilogue(z.detach().contiguous(), None if bias is None else bias.detach(), relu, mask, y.detach())
        if reuse:
            ctx.mark_dirty(z)
        if relu:
            ctx.save_for_backward(y)
        ctx.relu, ctx.mask, ctx.kernels = relu, mask, kernels
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None, None, None, None, None]:
        given, y = grad[0].contiguous(), ctx.saved_tensors[0] if ctx.relu else None
        if y is None and ctx.mask is None:  # the identity
            return given, given.sum(0) if ctx.needs_input_grad[1] else None, None, None, None, None
        out = torch.empty_like(given)
        total = ctx.kernels.gradient(given, y, ctx.mask, ctx.needs_input_grad[1], out)
        return out, total, None, None, None, None


def _masked(values: torch.Tensor, mask: Mask) -> torch.Tensor:
    """Apply a mask to a dense matrix by torch's operations."""
    blocks = torch.arange(-(-values.shape[1] // LANES), device=values.device)
    vertices = _words_of(mask.vertices, values.device)[:, None]
    trees = 0 if mask.trees is None else _words_of(mask.trees, values.device)[:, None]
    halves = _halves(blocks[None, :], vertices, trees, mask).reshape(len(values), len(blocks) * LANES)[:, : values.shape[1]]
    return torch.where(halves < mask.kept, values * float(mask.scale), torch.zeros((), dtype=values.dtype, device=values.device))


def _words_of(names: Any, device: torch.device) -> torch.Tensor:
    """Return names as 32-bit words: int64 on a device."""
    words = names if isinstance(names, torch.Tensor) else torch.from_numpy(np.array(names))  # a copy: the array may be read-only
    return words.to(device).long() & 0xFFFFFFFF


def _halves(index: torch.Tensor, vertices: torch.Tensor, trees: torch.Tensor | int, mask: Mask) -> torch.Tensor:
    """Return the 16-bit halves of the blocks of counters that are broadcast together: int64, shape (..., 8). See `rng.philox`."""
    shape = torch.broadcast_shapes(index.shape, vertices.shape, () if isinstance(trees, int) else trees.shape)  # type: ignore[no-untyped-call]
    trees = torch.full((), trees, device=index.device) if isinstance(trees, int) else trees
    c0, c1, c3 = (word.expand(shape) for word in (index, vertices, trees))
    c2 = torch.full_like(c0, mask.minibatch)
    k0, k1 = mask.key & 0xFFFFFFFF, mask.key >> 32
    for _ in range(10):
        (h0, l0), (h1, l1) = _product(c0, 0xD2511F53), _product(c2, 0xCD9E8D57)
        c0, c1, c2, c3 = h1 ^ c1 ^ k0, l1, h0 ^ c3 ^ k1, l0
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return torch.stack([half for word in (c0, c1, c2, c3) for half in (word & 0xFFFF, word >> 16)], dim=-1)


def _product(word: torch.Tensor, factor: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the upper and the lower 32 bits of a product of 32-bit numbers, in int64 that never overflows."""
    low, high = word & 0xFFFF, word >> 16
    first, second = low * factor, high * factor
    total = (first >> 16) + second
    return total >> 16, (total & 0xFFFF) << 16 | (first & 0xFFFF)
