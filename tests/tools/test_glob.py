"""Patterns for names, construct by construct."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.places import refusal
from toolkeep.definitions.tool_context import ToolFailed
from toolkeep.tools.glob import Glob


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        ("*.py", ["a.py", "src/a.py", ".py", "a\nb.py"], ["a.pyc", "a.py/b"]),
        ("a?c", ["abc", "x/aéc"], ["ac", "abbc", "a/c"]),
        ("./a.py", ["a.py"], ["src/a.py"]),
        ("/a.py", ["a.py"], ["src/a.py"]),
        ("src/", ["src", "x/src"], ["src/a"]),
        ("src/*", ["src/a"], ["src/a/b", "x/src/a", "src"]),
        ("src/**", ["src/a", "src/a/b"], ["src", "xsrc/a"]),
        ("src/**/b", ["src/b", "src/a/b", "src/a/a/b"], ["srcb", "src/ab"]),
        ("**/b", ["b", "a/b", "a/a/b"], ["ab"]),
        ("**", ["a", "a/b"], []),
        ("a**b", ["ab", "aXb"], ["a"]),
        ("x/a**b", ["x/ab", "x/aXb"], ["x/a/b"]),
        ("***", ["a"], []),
        ("{a,b}", ["a", "b"], ["c", "ab", "{a,b}"]),
        ("{a,{b,c}}d", ["ad", "bd", "cd"], ["d"]),
        ("a{,b}", ["a", "ab"], ["b"]),
        ("{a}", ["a"], ["b"]),
        ("a}b,c", ["a}b,c"], ["ab"]),
        ("{[}],a}", ["}", "a"], ["b"]),
        ("src/**/*.{ts,tsx}", ["src/a.ts", "src/x/a.tsx"], ["src/a.js", "a.ts"]),
        ("[abc]", ["a", "c"], ["d", "abc"]),
        ("[a-c]", ["b"], ["d", "-"]),
        ("[a-]", ["a", "-"], ["b"]),
        ("[]a]", ["]", "a"], ["b"]),
        ("[!]a]", ["b"], ["]", "a"]),
        ("[!x]y", ["ay"], ["xy", "y"]),
        ("[^x]", ["a", "^"], ["x"]),
        ("[x^]", ["x", "^"], ["a"]),
        ("[[]", ["["], ["a"]),
        ("[&&~]", ["&", "~"], ["a"]),
        ("[\\]]", ["]"], ["\\"]),
        ("[[:digit:]]*", ["1a"], ["a1", ":"]),
        ("[[:odd:]]", [":]", "o]"], ["1"]),
        ("x/a[.-0]b", ["x/a.b", "x/a0b"], ["x/a/b"]),
        ("x/a[!x]b", ["x/acb"], ["x/a/b"]),
        ("[z-a]", [], ["z", "a", "m"]),
        ("\\*", ["*"], ["a", "\\*"]),
        ("\\{a\\}", ["{a}"], ["a"]),
        ("a.b+(c)|$^", ["a.b+(c)|$^"], ["aXb+(c)|$^"]),
        ("(?i)a", ["(Xi)a"], ["A", "a"]),
        ("\n", ["\n"], ["n"]),
    ],
)  # fmt: skip
def test_a_pattern(pattern: str, fits: list[str], does_not: list[str]) -> None:
    glob = Glob(pattern)
    assert [name for name in (*fits, *does_not) if glob.fits(name)] == fits


_HINT = "write for example *.py; escape a literal character with a backslash"


@pytest.mark.parametrize(
    ("pattern", "answer"),
    [
        ("[a", f"'[a' is not a valid name pattern (a [ is not closed); {_HINT}"),
        ("[]", f"'[]' is not a valid name pattern (a [ is not closed); {_HINT}"),
        ("[!]", f"'[!]' is not a valid name pattern (a [ is not closed); {_HINT}"),
        ("{a,b", f"'{{a,b' is not a valid name pattern (a {{ is not closed); {_HINT}"),
        ("{{a}", f"'{{{{a}}' is not a valid name pattern (a {{ is not closed); {_HINT}"),
        ("a\\", f"'a\\' is not a valid name pattern (a backslash at its end takes nothing); {_HINT}"),
        ("x" * 501, "a pattern for names has at most 500 characters"),
    ],
)
def test_what_is_no_pattern_is_told(pattern: str, answer: str) -> None:
    def made() -> str:
        return str(Glob(pattern))

    assert refusal(made) == answer


@given(st.text(alphabet="ab*?[]{}!^-,\\/.:\n", max_size=20), st.text(alphabet="ab/]-.", max_size=20))
def test_any_text_is_a_pattern_or_is_refused(pattern: str, name: str) -> None:
    try:
        glob = Glob(pattern)
    except ToolFailed:
        return
    assert glob.fits(name) in (True, False)


@given(st.text(min_size=1, max_size=20).filter(lambda name: "/" not in name))
def test_an_escaped_name_fits_itself_alone(name: str) -> None:
    glob = Glob("".join(f"\\{character}" for character in name))
    assert glob.fits(name)
    assert not glob.fits(f"{name}x")


@pytest.mark.parametrize(
    "pattern", ["*a" * 250, "**/" * 166 + "c", "{" * 240 + "a" + "}" * 240, "{,a}" * 125, "[a-z]*" * 80 + "c"]
)
def test_a_hostile_pattern_comes_back(pattern: str) -> None:
    """An engine that tries every way takes years."""
    assert not Glob(pattern).fits("a" * 4000 + "b")


def test_a_name_that_is_no_text_fits_what_fits_any_name() -> None:
    name = os.fsdecode(b"a\xff\xfe.py")
    assert Glob("*.py").fits(name)
    assert Glob("a??.py").fits(name)
    assert not Glob("*.txt").fits(name)
