"""Options: declared once, read from flags and files."""
