"""The site: built without a warning, complete, searchable, and made of its own files alone."""

import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, blocks_of

DOCS = ROOT / "docs"


def in_navigation(page: Path) -> list[str]:
    """The pages that the toctrees of a page name."""
    toctrees = [
        block for block in blocks_of(page.read_text(encoding="utf-8")) if block.language == "{toctree}"
    ]
    lines = [line for block in toctrees for line in block.text.splitlines()]
    return [line for line in lines if line and not line.startswith(":")]


@pytest.mark.spec("DOC-2")
def test_every_page_is_in_the_navigation_once() -> None:
    pages = [
        path.relative_to(DOCS).with_suffix("").as_posix()
        for path in [*DOCS.glob("*.md"), *DOCS.glob("api/*.md")]
    ]
    api = [f"api/{name}" for name in in_navigation(DOCS / "api" / "index.md")]
    assert sorted(["index", *in_navigation(DOCS / "index.md"), *api]) == sorted([*pages, "errors/README"])


@pytest.mark.spec("DOC-2", "DOC-3")
def test_the_api_reference_has_the_public_modules_and_no_other() -> None:
    listed = re.findall(
        r"^\| `(toolkeep[\w.]*)` \|", (DOCS / "versioning.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert in_navigation(DOCS / "api" / "index.md") == listed
    for name in listed:
        page = (DOCS / "api" / f"{name}.md").read_text(encoding="utf-8")
        assert re.findall(r"automodule:: (\S+)", page) == [name]


class Loaded(HTMLParser):
    """The addresses that a browser fetches to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Scripts, pictures and frames by `src`, style sheets and fonts by `href` of a link."""
        given = dict(attrs)
        wanted = given.get("src") or (given.get("href") if tag == "link" else None)
        if wanted:
            self.addresses.append(wanted)


def loaded_from_elsewhere(page: str) -> list[str]:
    parser = Loaded()
    parser.feed(page)
    return [address for address in parser.addresses if re.match(r"(?:[a-z]+:)?//", address)]


def test_what_a_page_loads_from_elsewhere_is_noticed() -> None:
    page = '<a href="https://a.example"></a><link href="//b.example/c.css"><img src="d.svg"><script src="https://e.example">'
    assert loaded_from_elsewhere(page) == ["//b.example/c.css", "https://e.example"]


@pytest.mark.spec("DOC-2")
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    done = subprocess.run(
        [ROOT / "scripts" / "docs", tmp_path / "site"],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 100
    assert {
        page.name: found for page in pages if (found := loaded_from_elsewhere(page.read_text("utf-8")))
    } == {}
    styles = [style.read_text("utf-8") for style in (tmp_path / "site").rglob("*.css")]
    assert [style for style in styles if re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", style)] == []
    index = (tmp_path / "site" / "searchindex.js").read_text("utf-8")
    assert '"api/toolkeep"' in index
    assert '"errors/ACODE-TSR-005"' in index
