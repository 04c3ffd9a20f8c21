"""Slow and obvious oracles. Tests hold the package against them; benchmarks predict bytes with those of messages.

comparison     compares arrays and names the first difference
random_words   Philox in plain integers
definitions    what is computed, as dense matrices and by enumeration

Messages and bytes of every exchange, equal to what the communicators count:

sampling       the collectives of a partitioned adjacency, for each policy
call_recorder  records the calls of a sampler, from which `sampling` predicts
relations      hops over relations in block rows, recorded on one rank, and links
fetches        rows that ranks fetch: features, edges, learned rows
opening        what ranks send when they open a graph: seeds, relations, edges of links
collectives    one collective on every rank of a process grid
staged_rows    the stages in which rows travel
"""

from .comparison import assert_identical
from .definitions import dense_block, row_mean, sequential_inclusion
from .random_words import philox

__all__ = ["assert_identical", "dense_block", "philox", "row_mean", "sequential_inclusion"]
