"""How `scripts/docs` builds the site. Fonts, scripts and search are part of it; nothing comes from afar."""

import re
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util.inspect import signature, stringify_signature

import toolkeep.events
from toolkeep.calls import Refusal

ROOT = Path(__file__).resolve().parent.parent
SOURCE = "https://github.com/toolkeep/toolkeep/blob/main/"

project = "toolkeep"
author = "the toolkeep authors"
project_copyright = author

html_title = "toolkeep"
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 4
suppress_warnings = [
    "misc.highlighting_failure",  # a page shows broken JSON on purpose
    "toc.not_included",  # the pages of error codes hang on their table; a test looks after the others
]

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {
    "source_repository": "https://github.com/toolkeep/toolkeep/",
    "source_branch": "main",
    "source_directory": "docs/",
}
pygments_style = "friendly"
pygments_dark_style = "github-dark"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_mock_imports = ["agents", "langchain_core", "pydantic_ai"]
autodoc_default_options = {"members": True, "undoc-members": True}
default_role = "code"  # docstrings mark code with single backticks
python_use_unqualified_type_names = True
toc_object_entries = False  # each page would copy those of the whole API

toolkeep.events.Refusal = Refusal  # imported there for type checkers only; the signature of an event names it


def _lead_out(_: Sphinx, name: str, text: list[str]) -> None:
    """Links to files outside of docs/ lead to the repository."""
    here = (ROOT / "docs" / name).parent

    def absolute(link: "re.Match[str]") -> str:
        file, sign, anchor = link["target"].partition("#")
        found = (here / file).resolve()
        if found.is_relative_to(ROOT / "docs"):
            return link[0]
        return f"]({SOURCE}{found.relative_to(ROOT)}{sign}{anchor})"

    text[0] = re.sub(r"\]\((?P<target>\.\./[^)\s]+)\)", absolute, text[0])


def _own_signature(
    _: Sphinx, what: str, _name: str, given: object, _options: object, shown: str | None, returned: str | None
) -> tuple[str, str | None] | None:
    """A class below one of a package that is not installed here has the signature of its `__init__`."""
    made = vars(given).get("__init__") if what == "class" else None
    if made is None or not (shown or "").startswith("(*args"):
        return None
    return stringify_signature(signature(made, bound_method=True)), returned


def setup(app: Sphinx) -> None:
    """Hook into Sphinx."""
    app.connect("source-read", _lead_out)
    app.connect("autodoc-process-signature", _own_signature)
