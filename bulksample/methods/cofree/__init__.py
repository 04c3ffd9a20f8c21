"""CoFree-GNN: edges are divided among ranks, and only gradients travel."""
