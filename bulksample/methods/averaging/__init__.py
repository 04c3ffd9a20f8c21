"""Who the parties of model averaging are, and how weights travel between them: ranks in step, or processes over TCP."""
