"""Settings of the site that `make docs` builds from docs/, the pages of the root folder and the notes of bench/results."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bulksample import __version__  # noqa: E402

project, author, version = "bulksample", "The bulksample developers", __version__
release, copyright = version, f"{author}. MIT licence"

root_doc = "docs/index"
include_patterns = ["docs/**", "*.md", "bench/results/**"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
myst_heading_anchors = 3
suppress_warnings = ["myst.header", "toc.not_included", "ref.python"]

autodoc_default_options = {"members": True, "member-order": "bysource", "ignore-module-all": True}
autodoc_typehints = "signature"
autodoc_mock_imports = ["cupy", "mpi4py"]
napoleon_numpy_docstring, napoleon_google_docstring, napoleon_use_ivar = True, False, True

html_theme = "furo"
html_title = f"bulksample {version}"
html_show_sourcelink = False
html_extra_path = ["site"]  # index.html at the root of the site leads to the manual
