"""Many processes: typed collectives with deadlines, and what is built on them. No sampler and no torch in here."""
