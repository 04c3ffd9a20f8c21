"""Training: the one loop and what it stands on. Imports torch.

loop.py step.py      the loop and one step of it    method.py     the hooks that a method overrides
opening.py     opens a run                         record.py                keeps its books and reports it
context.py     the state that hooks receive        state.py checkpoint.py   resume bit by bit
batches.py     the steps of an epoch               loaders.py     makes the loaders of mini-batches, shared or of a rank's own part
link_batches.py      mini-batches of edges         sampling_weights.py         the file by which seeds are drawn
setup.py source.py feature_setup.py   the graph and its view
compute.py cuda/     the host or the GPU that computes
"""
