"""Predicted messages and bytes of every exchange."""
