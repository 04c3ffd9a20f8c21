"""Take the same hops on a GPU by other means: library products, and a sort of random keys. Each returns edges drawn.

They draw from the same graph and the same seeds, though not the same neighbours, and number the vertices of each minibatch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bulksample import CSR

Edges = Callable[[], int]  # draws, and counts the edges


def by_products(matrix: CSR, batches: list[np.ndarray], fanouts: tuple[int, ...]) -> Edges:
    """Multiply P = Q A by the library's SpGEMM, take prefix sums along its rows, search for every draw: published bulk sampling.

    Where CuPy allocates from torch's pool, as in training, each allocation passes through Python.
    """
    import cupy
    from cupyx.scipy import sparse

    n = matrix.shape[0]
    ones = cupy.ones(matrix.nnz, cupy.float32)
    a = sparse.csr_matrix((ones, cupy.asarray(matrix.indices), cupy.asarray(matrix.indptr.astype(np.int32))), shape=matrix.shape)

    def work() -> int:
        edges = 0
        for batch in batches:
            held = cupy.asarray(batch.astype(np.int32))
            for fanout in fanouts:
                rows = len(held)
                q = sparse.csr_matrix((cupy.ones(rows, cupy.float32), held, cupy.arange(rows + 1, dtype=cupy.int32)), shape=(rows, n))
                p = q @ a
                if p.nnz == 0:
                    raise RuntimeError("the library's product is empty")
                running = cupy.concatenate([cupy.zeros(1), cupy.cumsum(p.data, dtype=cupy.float64)])
                low, high = running[p.indptr[:-1]], running[p.indptr[1:]]
                wanted = low[:, None] + cupy.random.random((rows, fanout)) * (high - low)[:, None]
                places = cupy.searchsorted(running, wanted[high > low].ravel(), side="right") - 1
                edges += len(places)
                held = cupy.unique(cupy.concatenate([held, p.indices[places]]))
        return edges

    return work


def by_sorting(matrix: CSR, batches: list[np.ndarray], fanouts: tuple[int, ...], where: str) -> Edges:
    """Draw with torch alone: give all neighbours of a frontier a random key, take the s smallest of a row by one sort, then `unique`."""
    import torch

    device = torch.device(where)
    indptr, indices = torch.from_numpy(matrix.indptr.copy()).to(device), torch.from_numpy(matrix.indices.copy()).to(device)

    def work() -> int:
        edges = 0
        for batch in batches:
            held = torch.from_numpy(batch.astype(np.int64)).to(device)
            for fanout in fanouts:
                degree = indptr[held + 1] - indptr[held]
                starts = torch.cumsum(degree, 0) - degree
                row = torch.repeat_interleave(torch.arange(len(held), device=device), degree)
                within = torch.arange(len(row), device=device) - starts[row]
                order = torch.argsort(row.double() + torch.rand(len(row), device=device, dtype=torch.float64))
                taken = order[within < fanout]  # sorted by row first: a row keeps its places
                found = indices[indptr[held[row[taken]]] + within[taken]].long()
                edges += len(found)
                held, _ = torch.unique(torch.cat([held, found]), return_inverse=True)
        return edges

    return work
