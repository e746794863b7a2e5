"""The text of an HTML page, as a person would read it: headings, paragraphs, lists, and where links lead."""

import re
from html.parser import HTMLParser
from typing import Final
from urllib.parse import urljoin

_SKIPPED: Final = frozenset(
    ("script", "style", "noscript", "template", "svg", "math", "iframe", "object", "canvas", "head", "nav")
)
_BLOCKS: Final = frozenset(
    ("p", "div", "section", "article", "header", "footer", "main", "aside", "table", "tr", "ul", "ol", "dl",
     "dt", "dd", "blockquote", "form", "figure", "figcaption", "hr", "br", "pre", "li", "h1", "h2", "h3",
     "h4", "h5", "h6")
)  # fmt: skip
_HEADINGS: Final = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_DEPTH: Final = 200
"""The nesting of skipped elements from which the rest of the page is skipped."""


def text_of_html(html: str, address: str) -> str:
    """The title, then the text; links follow their words in brackets."""
    reader = _Reader(address)
    reader.feed(html)
    reader.close()
    lines = [re.sub(r"[ \t\r\f\v]+", " ", line).strip() for line in "".join(reader.written).split("\n")]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    title = re.sub(r"\s+", " ", "".join(reader.title)).strip()
    return f"{title}\n\n{text}".strip() if title and not text.startswith(title) else text


class _Reader(HTMLParser):
    """Collects the text."""

    def __init__(self, address: str) -> None:
        super().__init__(convert_charrefs=True)
        self.written: list[str] = []
        self.title: list[str] = []
        self._address = address
        self._skipped: list[str] = []
        self._is_title = False
        self._links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a block, a link, or a skipped element."""
        self._is_title = tag == "title"
        if tag in _SKIPPED:
            if len(self._skipped) < _DEPTH:
                self._skipped.append(tag)
            return
        if tag in _BLOCKS:
            self.written.append("\n" if tag in ("br", "li", "tr") else "\n\n")
        self.written.append(_HEADINGS.get(tag, "- " if tag == "li" else ""))
        if tag == "a":
            target = dict(attrs).get("href") or ""
            self._links.append("" if target.startswith(("#", "javascript:", "data:")) else target)

    def handle_endtag(self, tag: str) -> None:
        """End it."""
        self._is_title = False
        if self._skipped:
            if tag in self._skipped:
                while self._skipped.pop() != tag:
                    pass
            return
        if tag == "a" and self._links and (target := self._links.pop()):
            self.written.append(f" [{_joined(self._address, target)}]")
        elif tag in _BLOCKS:
            self.written.append("\n")

    def handle_data(self, data: str) -> None:
        """Text, or the title of the page."""
        if self._is_title:
            self.title.append(data)
        elif not self._skipped:
            self.written.append(data)


def _joined(address: str, target: str) -> str:
    try:
        return urljoin(address, target)
    except ValueError:
        return target
