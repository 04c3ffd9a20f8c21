"""Training: the one loop, and the models, features, evaluation and checkpoints that it uses. Imports torch."""
