"""The version, where the build can read it without importing numpy."""

__version__ = "0.1.0"
