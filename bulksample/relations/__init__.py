"""Heterogeneous and temporal graphs: vertex types, relations between them, and their mini-batches."""
