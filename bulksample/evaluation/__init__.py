"""Exact inference, and the scores made of it."""
