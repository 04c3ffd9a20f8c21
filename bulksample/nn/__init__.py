"""Graph neural networks over blocks: sparse products, layers, models and decoders. Imports torch."""
