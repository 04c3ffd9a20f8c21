"""A graph and its features in block rows over a process grid."""
