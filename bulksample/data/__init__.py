"""Graphs on disk: the store, readers of foreign formats, and generators of synthetic graphs.

    store                                   the format of this package: a folder of .npy files and a manifest
    from_edges, columns                     graphs from arrays in memory, and features, labels and splits from files
    npz, edgelist, matrixmarket, ogb        readers of other formats
    rmat, dcsbm (and generate, for both)    synthetic graphs from counter-based random numbers
    edge_split                              hold out edges for link prediction

Nothing here unpickles, and every graph that leaves this folder has been validated.
"""
