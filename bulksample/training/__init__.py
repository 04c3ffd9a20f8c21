"""Training: the one loop and what it stands on. Imports torch.

loop.py        the loop                            method.py     the hooks that a method overrides
context.py     the state that hooks receive        state.py checkpoint.py   resume bit by bit
batches.py     the steps of an epoch               loaders.py isolated_batches.py link_batches.py
setup.py source.py   the graph and its view        compute.py choose_device.py cuda/   the host or the GPU that computes
"""
