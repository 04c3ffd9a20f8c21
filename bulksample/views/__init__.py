"""A graph as one rank sees it: whole, in block rows, or a part."""
