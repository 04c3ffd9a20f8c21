"""Many processes: how ranks talk, and how a graph is spread over them. No sampler is imported here.

comm     communicators over MPI, torch.distributed or threads; deadlines; the ledger of seconds and bytes
matrix   a graph and its features in block rows: partitions, layouts, the process grid, the exchange of rows between ranks

Imports run one way: comm < matrix.
"""
