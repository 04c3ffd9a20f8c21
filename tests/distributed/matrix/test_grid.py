"""The order of a process grid: which ranks lie on one machine, and the share of the bytes that leave it."""

import numpy as np
import pytest
from oracles.fetches import share_between_machines

from bulksample import UsageError
from bulksample.distributed.comm.machines import VARIABLE
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.matrix.feature_exchange import RowExchange
from bulksample.distributed.matrix.grid import ProcessGrid, choose_order
from bulksample.distributed.matrix.partition import block_bounds


def places(p, c, order, machine_of=None):
    """(row, column) of every rank; ranks on the given machines."""

    def rank(comm):
        if machine_of is not None:
            comm.machine_of = np.array(machine_of)
        grid = ProcessGrid(comm, c, order)
        assert (grid.column_comm.rank, grid.row_comm.rank) == (grid.row, grid.column)
        return grid.row, grid.column

    return on_threads(p, rank)


def test_neighbors_share_a_row_or_a_column():
    assert places(4, 2, "rows") == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert places(4, 2, "columns") == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert places(6, 2, "columns") == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]
    assert places(3, 1, "columns") == [(0, 0), (1, 0), (2, 0)]
    assert places(3, 3, "columns") == [(0, 0), (0, 1), (0, 2)]


def test_ranks_that_a_launcher_deals_out_in_turn_are_counted_machine_by_machine():
    """Ranks 0 and 2 are on one machine, 1 and 3 on the other."""
    assert places(4, 2, "columns", [0, 1, 0, 1]) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert places(4, 2, "rows", [0, 1, 0, 1]) == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert places(4, 2, "rows", [0, 1, 0, 0]) == [(0, 0), (0, 1), (1, 0), (1, 1)]  # unequal machines: in the order of ranks


@pytest.mark.parametrize(("machines", "asked", "adds", "expected"), [
    ("4", "auto", False, "rows"), ("2,2", "auto", False, "columns"), ("2,2", "auto", True, "rows"), ("1,3", "auto", False, "rows"),
    ("2,2", "rows", False, "rows"), ("4", "columns", True, "columns"),
])  # fmt: skip
def test_auto_keeps_most_bytes_inside_machines(monkeypatch, machines, asked, adds, expected):
    monkeypatch.setenv(VARIABLE, machines)
    assert set(on_threads(4, lambda comm: choose_order(comm, asked, adds))) == {expected}


def test_columns_of_unequal_machines_and_unknown_orders_are_refused(monkeypatch):
    monkeypatch.setenv(VARIABLE, "1,2,1")

    def rank(comm):
        with pytest.raises(UsageError, match="machines of equally many ranks; they have 1, 2 and 1: use grid_order auto or rows"):
            choose_order(comm, "columns")
        with pytest.raises(UsageError, match="one of auto, rows, columns; got 'diagonal'"):
            choose_order(comm, "diagonal")

    on_threads(4, rank)


def share_of_rows_from_other_machines(machines, per_machine, c, order):
    """Every rank fetches every row of a matrix of one row a block: the share of all requested rows that comes from another machine."""
    p = machines * per_machine
    q = p // c

    def rank(comm):
        column = ProcessGrid(comm, c, order).column_comm
        rows = np.full((1, 1), column.rank, np.float32)
        before = comm.between_machines["features"]
        found = RowExchange(column, block_bounds(q, q), rows).fetch(np.arange(q))
        assert found[:, 0].tolist() == list(range(q))
        return comm.between_machines["features"] - before

    return sum(on_threads(p, rank)) / (4 * q * p)


# Share of column bytes that leave a machine, 16 machines of 8: rows 1 - max(g/c, 1)/q, columns max(0, 1 - g/q)
TABLE = {
    "rows": {1: 0.9375, 2: 0.9375, 4: 0.9375, 8: 0.9375, 16: 0.875},
    "columns": {1: 0.9375, 2: 0.875, 4: 0.75, 8: 0.5, 16: 0.0},
}


@pytest.mark.parametrize("order", TABLE)
def test_shares_of_a_small_cluster(monkeypatch, order):
    """Four machines of two: with c = 4 and columns on machines no row leaves one."""
    monkeypatch.setenv(VARIABLE, "2")
    for c, expected in {"rows": {1: 0.75, 2: 0.75, 4: 0.5}, "columns": {1: 0.75, 2: 0.5, 4: 0.0}}[order].items():
        assert share_between_machines(8, 2, c, order) == expected
        assert share_of_rows_from_other_machines(4, 2, c, order) == expected


@pytest.mark.long
@pytest.mark.parametrize("order", TABLE)
def test_128_ranks_give_the_table(monkeypatch, order):
    monkeypatch.setenv(VARIABLE, "8")
    for c, expected in TABLE[order].items():
        assert share_between_machines(128, 8, c, order) == expected
        assert share_of_rows_from_other_machines(16, 8, c, order) == pytest.approx(expected, abs=0.01 * expected)
