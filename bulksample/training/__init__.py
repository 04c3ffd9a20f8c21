"""Training: the one loop, its evaluation and its checkpoints. Imports torch."""
