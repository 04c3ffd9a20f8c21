"""A plugin of pytest: puts the extension that ``SANITIZED_EXTENSION`` names in the place of the installed one."""

import os
import sys

from .mutant_server import Mutated

sys.meta_path.insert(0, Mutated({"module": "bulksample._native", "file": os.environ["SANITIZED_EXTENSION"]}))
