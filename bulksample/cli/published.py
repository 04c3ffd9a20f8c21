"""Flags of the code published with the matrix-based sampling paper, so that its command lines run here.

``--help`` does not show them. The published code partitions the graph unless ``--replicate-graph`` is given; here the method decides.

References
----------
Tripathy, Yelick and Buluç, "Distributed matrix-based sampling for graph neural network training", MLSys 2024, and the flags in the
README of its code, github.com/PASSIONLab/CAGNET, branch distributed-sampling.
"""

# The option with the same meaning, by flag
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
# Flags without an effect here, and the reason
IGNORED = {
    "semibulk": "columns are extracted for each mini-batch separately",
    "n_darts": "draws are exact and need no darts",
    "timing": "phases are always timed",
}
SWITCHES = ("replicate_graph", "timing")
