"""How Sphinx builds these pages: `make docs`."""

from typing import NamedTuple

import requite

project = "requite"
author = "The requite authors"
copyright = author
release = version = requite.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
# A public name is described under `requite` and in its module: either target will do.
suppress_warnings = ["ref.python"]

html_theme = "furo"
html_title = f"requite {version}"
html_show_sphinx = False
html_static_path = ["_static"]
html_css_files = ["page.css"]

myst_enable_extensions = ["attrs_inline", "colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
# `name` in a docstring is code, as everywhere else in the project.
default_role = "literal"


def mark_indented_blocks(app, what, name, obj, options, lines):
    """Make an indented block below a paragraph literal, as it reads in the source."""
    for number in range(len(lines) - 1, 1, -1):
        paragraph, blank, block = lines[number - 2 : number + 1]
        starts_block = block.startswith("    ") and not blank and paragraph[:1].isalnum()
        if starts_block and not paragraph.endswith("::"):
            lines[number - 1 : number] = ["", "::", ""]


class _Sample(NamedTuple):
    field: int


def skip_fields(app, what, name, obj, skip, options):
    """Leave the fields of named tuples to the signature; "Alias for field 0" tells nothing."""
    return True if isinstance(obj, type(_Sample.field)) else None


def setup(app):
    app.connect("autodoc-skip-member", skip_fields)
    app.connect("autodoc-process-docstring", mark_indented_blocks)
