"""Compute how many blocks of a kernel a multiprocessor holds at once, from its registers and its shared memory.

A grid of as many blocks as the device holds leaves no tail: every block runs from the start, and loops.
"""

from __future__ import annotations

from typing import NamedTuple

from .kernels import THREADS

_WARP = 32
_REGISTERS = 256  # registers are given to a warp in such units
_SHARED = 128  # bytes: shared memory is given to a block in such units


class Processor(NamedTuple):
    """The resources of a multiprocessor, which all its blocks share."""

    threads: int
    blocks_at_most: int
    registers: int
    shared_bytes: int
    reserved_bytes: int  # of shared memory, which each block takes beside its own

    def blocks(self, registers: int, shared_bytes: int, threads: int = THREADS) -> int:
        """Return the blocks of `threads` threads that fit at once, at least 1.

        Parameters
        ----------
        registers : int
            Of a thread.
        shared_bytes : int
            Of a block.
        """
        of_warp = -(-registers * _WARP // _REGISTERS) * _REGISTERS
        of_block = -(-(shared_bytes + self.reserved_bytes) // _SHARED) * _SHARED
        warps = self.registers // max(1, of_warp)
        return max(1, min(self.threads // threads, self.blocks_at_most, warps * _WARP // threads, self.shared_bytes // max(1, of_block)))
