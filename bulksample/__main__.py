"""`python -m bulksample` is the command `bulksample`."""

from .cli import main

main()
