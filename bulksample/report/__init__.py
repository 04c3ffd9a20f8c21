"""Results of runs: read from files, compared, drawn, and written as a page."""
