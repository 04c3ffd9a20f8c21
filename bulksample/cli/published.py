"""Flags of the code published with the matrix-based sampling paper, so that a command line of theirs runs here.

They are taken but not shown in ``--help``. Their graph is partitioned unless ``--replicate-graph`` is given; ours is as the method asks.

References
----------
Tripathy, Yelick and Buluç, "Distributed matrix-based sampling for graph neural network training", MLSys 2024, and the flags in the
README of its code, github.com/PASSIONLab/CAGNET, branch distributed-sampling.
"""

# Of each flag, our option of the same meaning
PUBLISHED = {
    "n_bulkmb": "bulk_size",
    "samp_num": "fanouts",
    "sample_method": "sampler",
    "n_epochs": "epochs",
    "n_layers": "layers",
    "n_hidden": "hidden",
    "bulk_batch_fetch": "fetch_together",
    "replicate_graph": "graph",  # a switch: replicated
}
# And of those that decide nothing here, why
IGNORED = {
    "semibulk": "columns are extracted for each minibatch by itself",
    "n_darts": "what is drawn is exact, and no dart is thrown",
    "timing": "phases are always timed",
}
SWITCHES = ("replicate_graph", "timing")
