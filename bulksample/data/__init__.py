"""Graphs on disk: the store, readers of foreign formats, and generators of synthetic graphs.

    store                                   the format of this package: a folder of .npy files and a manifest
    from_edges, columns                     graphs from arrays in memory, and features, labels and splits from files
    npz, edgelist, matrixmarket, ogb        readers of other formats; ogb_types reads OGB sets of several types
    tables                                  graphs from tables with primary and foreign keys
    rmat, dcsbm, hetero                     synthetic graphs from counter-based random numbers
    edge_split, link_split                  hold out edges for link prediction: of a plain graph, of a relation

Nothing here unpickles, and every graph that leaves this folder has been validated.
"""
