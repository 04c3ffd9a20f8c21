"""Typed collectives between ranks, over MPI, torch.distributed or threads."""
