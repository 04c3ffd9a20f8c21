"""Graph neural networks over blocks: layers, models, features, a graph as one rank sees it, exact inference. Imports torch."""
