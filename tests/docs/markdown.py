"""Reads Markdown as far as the tests need it: fenced blocks, headings, links."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*.md")])

_FENCE = re.compile(r" {0,3}(?P<fence>```+|~~~+)(?P<info>.*)")
_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"#{1,6} .*")
_BLOCK = re.compile(r"^ {0,3}(```+|~~~+).*?^ {0,3}\1\s*$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """One fenced block of a page."""

    language: str
    name: str
    """The rest of the info string: the file that the block holds, where it holds one."""
    text: str
    line: int
    """The line of the opening fence, counted from one."""
    lead: str
    """The last line of prose before the block."""


def blocks_of(page: str) -> Iterator[Block]:
    """Every fenced block, in order; ValueError where one is never closed."""
    lead = ""
    lines = enumerate(page.splitlines(), start=1)
    for number, line in lines:
        opening = _FENCE.fullmatch(line)
        if opening is None:
            lead = line.strip() or lead
            continue
        language, _, name = opening["info"].strip().partition(" ")
        inside = []
        for _, inner in lines:
            if inner.strip() == opening["fence"]:
                break
            inside.append(inner)
        else:
            raise ValueError(f"the block of line {number} is never closed")
        yield Block(language, name.strip(), "".join(f"{text}\n" for text in inside), number, lead)
        lead = ""


def links_of(page: str) -> list[str]:
    """The targets of the links that stay inside the project."""
    prose = re.sub(r"`[^`\n]*`", "code", _without_blocks(page))
    targets = [link["target"] for link in _LINK.finditer(prose)]
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def headings_of(page: str) -> list[str]:
    """The headings with their marks, in order."""
    return [line for line in _without_blocks(page).splitlines() if _HEADING.fullmatch(line)]


def anchors_of(page: str) -> set[str]:
    """The anchors that the headings make."""
    titles = [heading.lstrip("#").strip() for heading in headings_of(page)]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def _without_blocks(page: str) -> str:
    return _BLOCK.sub("", page)
