"""Graphs of several vertex types: their store, and what they are made of: tables with keys, files of others, random words."""
