"""Finds values of a form in a text that nobody vouches for: addresses, links, accounts, days, numbers, ids.

Every pattern is bounded, since outsiders choose the text.
"""

import re
from collections.abc import Iterator
from typing import Final, Literal

from toolkeep.definitions.vocabulary import Form
from toolkeep.flow.known_values import fold, written_dates
from toolkeep.flow.result_reader import FORMS

Kind = Literal["email", "url", "iban", "date", "number", "id"]

_KINDS: Final = {
    "email": re.compile(
        r"(?<![A-Za-z0-9._+-])[A-Za-z0-9._+-]{1,64}@[A-Za-z0-9-]{1,40}(?:\.[A-Za-z0-9-]{1,40}){1,4}"
    ),
    "url": re.compile(r"https?://[^\s\"'<>\\^`{|}]{1,200}"),
    "iban": re.compile(
        r"(?<![A-Za-z0-9])[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?![A-Za-z0-9])"
    ),
    "number": re.compile(r"(?<![\w.,/:+-])[+-]?[0-9]{1,24}(?:\.[0-9]{1,12})?(?!\w|[-.,/:][0-9])"),
    # With a digit: otherwise every word is one.
    "id": re.compile(r"(?<![\w.@+:/#-])(?=[^\s0-9]{0,63}[0-9])[A-Za-z0-9_.@+:/#-]{1,64}(?![\w.@+:/#-])"),
}
_DATE: Final = re.compile(r"(?<!\d)\d{4}-\d\d-\d\d(?!\d)", re.ASCII)
_AT_END: Final = ".,;:!?)"
_CONTACTS: Final = tuple(
    re.compile(pattern)
    for pattern in (
        # Each begins with what is sought first: a megabyte without it takes a millisecond.
        r"@[^\s@]{0,64}\.[^\s@]{1,64}",
        r"://[^\s]{1,200}",
        r"www\.[^\s]{1,200}",
        r"\.[A-Za-z]{2,20}/[^\s]{1,200}",
        r"(?<!\w)[A-Za-z]{2}[0-9]{2}(?: ?[A-Za-z0-9]{4}){2,7}(?: ?[A-Za-z0-9]{1,3}(?!\w))?",
    )
)
"""Wider than the forms: what leads whoever reads it somewhere, in many spellings."""
_BEFORE: Final = re.compile(r"[^\s@<>(\[\"',;]{0,64}\Z")
"""The beginning of what was found, such as the name in an address."""


def find_values(text: str, kind: Kind) -> Iterator[str]:
    """The values of a kind in a text, each of which has the form of the kind."""
    if kind == "date":
        yield from _DATE.findall(text)
        for year, month, day in written_dates(fold(text)):
            if year:
                yield f"{year:04}-{month:02}-{day:02}"
        return
    matches = FORMS[Form(kind)].fullmatch
    for found in _KINDS[kind].finditer(text):
        value = found[0].rstrip(_AT_END)
        if matches(value):
            yield value


def find_contacts(text: str) -> Iterator[str]:
    """Links, addresses and accounts in a text.

    It finds the usual ones: what it misses is not asked about, as nothing of a content is.
    """
    for pattern in _CONTACTS:
        for found in pattern.finditer(text):
            before = _BEFORE.search(text[max(0, found.start() - 64) : found.start()])
            yield (before[0] if before else "") + found[0].rstrip(_AT_END)
