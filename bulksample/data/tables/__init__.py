"""Graphs from tables with primary and foreign keys: rows are vertices, foreign keys are relations."""
