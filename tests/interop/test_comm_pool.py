"""Pools of communicators: how many are made, how often garbage is collected for them, and what users get beyond."""

import gc

import pytest
from pyg_graphs import make_data

from bulksample.distributed.comm.threads import SerialComm, on_threads
from bulksample.distributed.matrix.grid import CommPool, duplicates
from bulksample.interop.pyg import NeighborLoader

DATA = make_data()


def test_users_that_stay_cost_few_collections_of_garbage(monkeypatch):
    found = []
    monkeypatch.setattr(gc, "collect", lambda: found.append(1))
    comm = SerialComm()
    pool = CommPool(comm, comm.duplicate)
    kept = [pool.lease() for _ in range(200)]
    assert len({id(lease.lent) for lease in kept}) == 200
    assert len(found) == 4  # at 16, 32, 64 and 128


@pytest.mark.parametrize("stays", [(0, 1), (0,), ()], ids=["on both", "on one", "on none"])
def test_loaders_without_number_use_few_communicators(stays):
    """An MPI library has two thousand, and each of gloo has a socket to every rank."""

    def body(comm):
        kept, found = [], []
        for seed in range(30):
            loader = NeighborLoader(DATA, [2], batch_size=32, seed=seed, comm=comm)
            kept += [loader] if comm.rank in stays else []
            found.append(next(iter(loader)).n_id.tolist())
        return found, [next(iter(loader)).n_id.tolist() for loader in kept] if len(stays) == 2 else None, len(duplicates(comm)._made)

    def alone(seed, rank, epoch):
        loader = NeighborLoader(DATA, [2], batch_size=32, seed=seed)
        loader.epoch = epoch
        return [batch.n_id.tolist() for batch in loader][rank]

    for rank, (found, again, made) in enumerate(on_threads(2, body)):
        assert found == [alone(seed, rank, 0) for seed in range(30)]
        assert again is None or again == [alone(seed, rank, 1) for seed in range(30)]
        assert made <= 8
