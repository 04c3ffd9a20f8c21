"""Find the CUDA sources, and the headers that they share with the CPU back end."""

from __future__ import annotations

from pathlib import Path


def kernel_directory() -> Path:
    """Return the folder of csrc/'s headers and kernels: inside an installed package, or beside it in a checkout.

    Raises
    ------
    FileNotFoundError
        If neither holds them.
    """
    package = Path(__file__).parents[1]
    places = (package / "csrc", package.parent / "csrc")
    for directory in places:
        if (directory / "philox.h").is_file():
            return directory
    raise FileNotFoundError(f"the kernel sources are neither in {places[0]} nor in {places[1]}; install bulksample again")
