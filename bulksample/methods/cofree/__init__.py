"""CoFree-GNN: each rank trains on its part of the edges, and the ranks exchange only gradients."""
