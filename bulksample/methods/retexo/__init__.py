"""RETEXO: a network trained layer by layer.

method.py      the hooks, with a part of the graph on each rank, and the model of one stage
federated.py   many clients that keep their features
"""
