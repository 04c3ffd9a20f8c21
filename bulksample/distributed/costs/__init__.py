"""Predicted messages and bytes of every exchange. Tests compare each prediction with what was sent: they are equal.

sampling           the collectives of a partitioned adjacency, for each policy
feature_fetch      the fetches of a `RowExchange`
startup            the seeds of a partitioned graph
relations          hops over relations in block rows, recorded on one rank
call_recorder      records the calls of a sampler, from which `sampling` predicts
collectives        one collective on every rank of a process grid
published          the cost formula of the 1.5D paper, for comparison
partition_quality  edges, labels and vertices that a partition costs those who train on single parts
"""
