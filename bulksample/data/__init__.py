"""Graphs on disk: the store, readers of foreign formats, and generators of synthetic graphs.

    store                                   the format of this package: a folder of .npy files and a manifest
    from_edges, columns                     graphs from arrays in memory, and features, labels and splits from files
    npz, edgelist, matrixmarket, ogb        readers of other formats; ogb_types reads OGB sets of several types
    edge_columns, text                      the columns of edge lists, and tables of numbers, names and dates in text
    tables                                  graphs from tables with primary and foreign keys
    rmat, dcsbm, hetero                     synthetic graphs from counter-based random numbers
    link_split                              hold out edges of a relation for link prediction

Nothing here unpickles, and every graph that leaves this folder has been validated.
"""
