"""A command line is split as a shell splits it, and refused where a shell would do more than that."""

import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolkeep.definitions.command_line import NoCommand, split_command

HINT = "there is no shell; single-quote it if it is meant as text, or run sh -c '...' where sh is granted"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ls", ["ls"]),
        ("  ls \t -l  ", ["ls", "-l"]),
        ("ls -l\n", ["ls", "-l"]),
        ("echo 'a b' \"c d\" e\\ f", ["echo", "a b", "c d", "e f"]),
        ("echo a'b'\"c\"d", ["echo", "abcd"]),
        ("echo '' \"\"", ["echo", "", ""]),
        ("echo '\\n' \"\\n\" \\n", ["echo", "\\n", "\\n", "n"]),
        ('echo "\\$HOME \\" \\\\ \\`"', ["echo", '$HOME " \\ `']),
        ("echo '$HOME `x` *'", ["echo", "$HOME `x` *"]),
        ("echo \"a;b|c&d>e*?[#~\"", ["echo", "a;b|c&d>e*?[#~"]),
        ("echo 'a\nb'", ["echo", "a\nb"]),
        ("find . -name '*.py' -exec grep x {} \\;", ["find", ".", "-name", "*.py", "-exec", "grep", "x", "{}", ";"]),
        ("git show HEAD@{1} HEAD~2 @{u}..HEAD", ["git", "show", "HEAD@{1}", "HEAD~2", "@{u}..HEAD"]),
        ("echo a#b a=b --x=~/y a,b 1..2", ["echo", "a#b", "a=b", "--x=~/y", "a,b", "1..2"]),
        ("echo \\~ '#' \\{a,b}", ["echo", "~", "#", "{a,b}"]),
        ("'A=b' c", ["A=b", "c"]),
        ("echo ls \\ ", ["echo", "ls", " "]),
        ("echo é 日本", ["echo", "é", "日本"]),
    ],
)  # fmt: skip
def test_words(line: str, words: list[str]) -> None:
    assert split_command(line) == words


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "it names no program"),
        ("  \n", "it names no program"),
        ("'' a", "it names no program"),
        ("a | b", f"it uses pipes (|): {HINT}"),
        ("a|b", f"it uses pipes (|): {HINT}"),
        ("a && b", f"it uses background jobs and && (&): {HINT}"),
        ("a &", f"it uses background jobs and && (&): {HINT}"),
        ("a; b", f"it uses lists of commands (;): {HINT}"),
        ("a > b", f"it uses redirections (>): {HINT}"),
        ("a 2>&1", f"it uses redirections (>): {HINT}"),
        ("a < b", f"it uses redirections (<): {HINT}"),
        ("(a)", f"it uses subshells ((): {HINT}"),
        ("a\nb", f"it uses several lines (newline): {HINT}"),
        ("a `b`", f"it uses command substitution (`): {HINT}"),
        ('a "`b`"', f"it uses command substitution (`): {HINT}"),
        ("a $b", f"nothing puts variables in the place of $: {HINT}"),
        ('a "$b"', f"nothing puts variables in the place of $: {HINT}"),
        ("a $(b)", f"nothing puts variables in the place of $: {HINT}"),
        ("a *.py", f"nothing puts file names in the place of *: {HINT}"),
        ("a b?", f"nothing puts file names in the place of ?: {HINT}"),
        ("a [b]", f"nothing puts file names in the place of [: {HINT}"),
        ("a ~", f"nothing puts a home folder in the place of ~: {HINT}"),
        ("a ~b/c", f"nothing puts a home folder in the place of ~: {HINT}"),
        ("a # b", f"a shell would leave out what follows #: {HINT}"),
        ("#a", f"a shell would leave out what follows #: {HINT}"),
        ("a {b,c}", f"nothing makes several words of braces: {HINT}"),
        ("a x{1..3}", f"nothing makes several words of braces: {HINT}"),
        ("A=b c", f"nothing sets a variable before a program; write env A=b... : {HINT}"),
        ("A= c", f"nothing sets a variable before a program; write env A=... : {HINT}"),
        ("A='b c' d", f"nothing sets a variable before a program; write env A=... : {HINT}"),
        ("cd /tmp", f"cd is a word of the shell, not a program: {HINT}"),
        ("! a", f"! is a word of the shell, not a program: {HINT}"),
        ("a 'b", "a quote (') is not closed"),
        ('a "b', 'a quote (") is not closed'),
        ("a \\", "it ends with a backslash"),
        ("a \\\nb", f"it holds a backslash before the end of a line: {HINT}"),
        ('a "b\\\nc"', f"it holds a backslash before the end of a line: {HINT}"),
        ("a\rb", f"it holds a control character outside of quotes: {HINT}"),
        ("a '\0'", "it contains a NUL character"),
        ("a \\\0", f"it holds a backslash before the end of a line: {HINT}"),
    ],
)
def test_what_a_shell_would_act_on_is_refused(line: str, reason: str) -> None:
    with pytest.raises(NoCommand) as caught:
        split_command(line)
    assert str(caught.value) == reason


WORDS = st.lists(st.text("ab-_./:=@%+,^é", min_size=1, max_size=8), min_size=1, max_size=5)


@given(WORDS.map(" ".join))
def test_plain_words_are_split_as_python_splits_them(line: str) -> None:
    assert split_command(f"program {line}") == shlex.split(f"program {line}")


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1))
def test_what_python_quotes_comes_back(words: list[str]) -> None:
    line = shlex.join(["program", *words])
    try:
        assert split_command(line) == ["program", *words]
    except NoCommand as error:
        pytest.fail(f"{error}: {line!r}")


LINES = st.text("ab \t'\"\\|&;<>()$`*?[]~#{},.=!%^\n-é", max_size=14)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=200)
@given(LINES)
def test_what_is_split_at_all_is_split_as_a_shell_does(tmp_path: Path, line: str) -> None:
    """In a folder with files that patterns would find, and with a home."""
    (tmp_path / "a").touch()
    (tmp_path / "b").touch()
    try:
        words = split_command(f"printf '%s\\0' {line}")
    except NoCommand:
        return
    command = f"printf '%s\\0' {line}".strip("\r\n")
    done = subprocess.run(
        ["bash", "--norc", "-c", command],
        capture_output=True,
        cwd=tmp_path,
        env={"HOME": "/home"},
        check=True,
    )
    arguments = words[2:] or [""]  # without arguments printf writes its pattern once
    assert done.stdout.decode() == "".join(f"{word}\0" for word in arguments)
