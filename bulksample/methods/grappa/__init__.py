"""Grappa: training on parts of the vertices, where only gradients travel.

method.py         the hooks, and the chunks that each rank sees
seed_weights.py   weights by coverage, and exact weights of sampled trees
"""
