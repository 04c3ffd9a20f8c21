"""Training on parts of the vertices: chunks, steps without peers, and what a seed that is seen in part counts."""
