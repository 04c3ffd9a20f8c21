"""BNS: full-graph training on a sample of the halo."""
