"""A graph and its features in block rows over a process grid.

partition                which part each vertex belongs to: block, random, METIS or super-nodes
partition_quality        the edges, labels and vertices that a partition loses for those who train on single parts
layout                   the block row and the place of each vertex
grid                     p ranks as p/c process rows of c members, and the pools that lend grids and communicators
graph_block              one rank's rows of a stored graph
placement                where topology and features lie
open_graph               opens a stored graph on all ranks, replicated or in block rows
rank_graph               `RankGraph`: a stored graph as one rank holds it, for loaders
block_rows               `BlockRowAdjacency`: the adjacency in block rows, for samplers
owner, spgemm15d         the two policies of both: owners draw from their rows, or rows travel (the 1.5D product)
requests                 requests for rows of an adjacency, to their owners
messages                 messages of several sections, rows of different lengths, and replies to requests
reply_slots              how long replies are, known to all ranks
relation_blocks          `PartitionedRelations`: relations of a heterogeneous graph in block rows, for samplers
feature_exchange         `RowExchange`: fetches feature rows (or hidden rows) from the ranks that hold them; the same for sparse features
edge_exchange            the same for sampled edges
codec                    how rows are encoded while they travel: fp32, fp16, bf16, int8, int4, int2
inference_memory         the memory of exact inference on one rank
halo                     the rows of other ranks that a full-graph layer needs, and their gradients
"""
