"""Loaders of sampled mini-batches: the engine of epochs, positions that can be saved, bulks that fit memory, and groups of seeds."""
