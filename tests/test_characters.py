"""Characters that a reader does not see, by tables of our own."""

import sys
import unicodedata

import pytest

from toolkeep.characters import Unseen, is_blank, unseen


@pytest.mark.parametrize(
    ("char", "kind"),
    [
        ("\x00", Unseen.CONTROL),
        ("\x1b", Unseen.CONTROL),
        ("\x9b", Unseen.CONTROL),
        ("\u00ad", Unseen.ZERO_WIDTH),
        ("\u200b", Unseen.ZERO_WIDTH),
        ("\ufeff", Unseen.ZERO_WIDTH),
        ("\u2060", Unseen.ZERO_WIDTH),
        ("\u202e", Unseen.BIDI),
        ("\u2066", Unseen.BIDI),
        ("\U000e0001", Unseen.TAG),
        ("\U000e0041", Unseen.TAG),
        ("\ufe0f", Unseen.SELECTOR),
        ("\U000e0100", Unseen.SELECTOR),
        ("\u3164", Unseen.BLANK),
        ("\u2800", Unseen.BLANK),
        ("\ue000", Unseen.PRIVATE),
        ("\U0010ffff", Unseen.PRIVATE),
    ],
)
def test_each_kind_is_known(char: str, kind: Unseen) -> None:
    assert unseen(char) is kind


@pytest.mark.parametrize("char", [" ", "\t", "\n", "\r", "a", "é", "日", "\u00a0", "😀", "\u0301", "ي"])
def test_what_is_seen_is_not_unseen(char: str) -> None:
    assert unseen(char) is None


def test_every_format_character_of_unicode_is_known() -> None:
    """Those that stand for something seen aside: signs that go around numbers, and of ancient scripts."""
    seen = {
        *range(0x600, 0x606),
        0x6DD,
        0x70F,
        0x890,
        0x891,
        0x8E2,
        0x110BD,
        0x110CD,
        *range(0x13430, 0x13440),
    }
    missed = [
        hex(code)
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code)) in ("Cf", "Co") and unseen(chr(code)) is None and code not in seen
    ]
    assert missed == []


def test_blank_letters_and_selectors_are_blank() -> None:
    assert [is_blank(char) for char in "\u3164\ufe0fa \u200b"] == [True, True, False, False, False]
