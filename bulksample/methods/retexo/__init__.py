"""RETEXO: train a network layer by layer."""
