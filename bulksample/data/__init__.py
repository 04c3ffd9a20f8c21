"""Graphs on disk: the store, readers of foreign formats, and generators of synthetic graphs.

`store` is the format of this package. `npz`, `edgelist`, `matrixmarket` and `ogb` read what others wrote;
`generate` makes graphs out of counter-based randomness. Nothing here unpickles, and every graph that leaves
this folder has been validated.
"""
