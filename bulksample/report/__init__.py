"""Results of runs: read from files, compared, drawn, written as a page, and sent to trackers."""
