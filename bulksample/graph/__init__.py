"""Graphs: vertices of one or several types, and the relations between them, each an adjacency matrix with columns of its own."""

from .graph import EDGE, NODE, Graph
from .types import Key, Relation, VertexType, spelled

__all__ = ["EDGE", "NODE", "Graph", "Key", "Relation", "VertexType", "spelled"]
