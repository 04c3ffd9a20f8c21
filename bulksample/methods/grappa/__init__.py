"""Grappa: training on parts of the vertices, where only gradients travel.

method.py         the hooks                 chunks.py         the chunks that each rank sees
seed_weights.py   weights by coverage       tree_weights.py   exact weights of sampled trees
options.py
"""
