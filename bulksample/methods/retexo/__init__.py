"""RETEXO: a network trained layer by layer.

method.py      the hooks, with a part of the graph on each rank      federated.py   many clients that keep their features
options.py                                                           single_layer.py   the model of one stage
"""
