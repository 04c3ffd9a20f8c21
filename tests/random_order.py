"""Tests run in random order, where pytest-randomly is installed: modules in turn, and the tests of a module among themselves.

The seed is that of the day, so that a run can be repeated without a word; the last line of a run names it. Another order is
``--randomly-seed=7``, that of the run before ``--randomly-seed=last``, and the order of the files ``-p no:randomly``. The random numbers
of tests do not change with it.
"""

from datetime import date


def pytest_configure(config):
    """Choose the seed, before pytest-randomly reads it."""
    if hasattr(config.option, "randomly_seed"):
        config.option.randomly_reset_seed = False
        if config.option.randomly_seed == "default":
            config.option.randomly_seed = int(f"{date.today():%Y%m%d}")


def pytest_terminal_summary(terminalreporter, config):
    if config.pluginmanager.hasplugin("randomly") and config.option.randomly_reorganize:
        terminalreporter.write_line(f"random order; to repeat it: --randomly-seed={config.option.randomly_seed}")
