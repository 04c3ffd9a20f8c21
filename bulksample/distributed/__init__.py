"""Many processes: how ranks talk, how a graph is spread over them, and what that costs in bytes. No sampler is imported here.

comm     communicators over MPI, torch.distributed or threads; deadlines; the ledger of seconds and bytes
matrix   a graph and its features in block rows: partitions, layouts, the process grid, the exchange of rows between ranks
costs    predicted messages and bytes of every exchange, equal to what the communicators count

Imports run one way: comm < matrix < costs.
"""
