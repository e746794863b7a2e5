"""What a search leaves out is what git leaves out."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolkeep.tools.ignore_files import IgnoreRules

FOLDERS = ["a", "b", "a/a", "a/b", "b/a.b", "a/b/a"]
FILES = [
    f"{folder}{name}"
    for folder in ("", *(f"{f}/" for f in FOLDERS))
    for name in ("ab", "b.a", "a b", "#a", "a]")
]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of folders and files whose names are made of few characters."""
    root = Path(os.path.realpath(tmp_path_factory.mktemp("tree")))
    subprocess.run(["git", "init", "-q", "--template=", str(root)], check=True)
    for folder in FOLDERS:
        (root / folder).mkdir(parents=True, exist_ok=True)
    for file in FILES:
        (root / file).touch()
    return root


def by_git(root: Path) -> set[str]:
    """What git says is ignored."""
    asked = "\0".join([*FOLDERS, *FILES])
    environment = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "PATH": os.environ["PATH"]}
    command = ["git", "-C", str(root), "check-ignore", "-z", "--stdin", "--no-index"]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode in (0, 1), done.stderr
    return set(done.stdout.split("\0")) - {""}


def by_us(root: Path) -> set[str]:
    """What we say, folder by folder; all that an ignored folder holds is ignored with it."""
    return set(_ignored(str(root), "", IgnoreRules(str(root)), is_out=False))


def _ignored(folder: str, above: str, rules: IgnoreRules, *, is_out: bool) -> Iterator[str]:
    for entry in os.scandir(folder):
        if entry.name.startswith("."):
            continue
        name = f"{above}{entry.name}"
        is_covered = is_out or rules.covers(entry.path, is_folder=entry.is_dir())
        if is_covered:
            yield name
        if entry.is_dir():
            inside = rules if is_covered else IgnoreRules(entry.path, rules)
            yield from _ignored(entry.path, f"{name}/", inside, is_out=is_covered)


def write_rules(root: Path, rules: dict[str, str]) -> None:
    for folder in ("", *FOLDERS):
        (root / folder / ".gitignore").write_text(rules.get(folder, ""), newline="")


PIECES = st.sampled_from([
    "a", "b", "ab", ".", "*", "**", "?", "/", "/**/", "**/", "/**", "[ab]", "[!a]", "[^b]", "[]a]", "[a-b]", "[.-0]",
    "[[:alpha:]]", "[[:punct:]]", "\\a", "\\#", "\\!", "!", "#", " ", "\\ ", "[", "]", "{a,b}", "a b", "b.a", "\\", "\t",
])  # fmt: skip
LINES = st.builds(
    "".join, st.lists(PIECES, min_size=1, max_size=5).map(lambda parts: [*parts])
) | st.sampled_from(["*", "!*/", "!ab", "a/", "!a/", "/a", "a/*", "!a/b", "**", "*.a", "", "# a", "!", "/"])
RULES = st.builds(
    lambda lines, end: end.join(lines), st.lists(LINES, max_size=5), st.sampled_from(["\n", "\r\n"])
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(rules=st.dictionaries(st.sampled_from(["", *FOLDERS]), RULES, min_size=1, max_size=3))
def test_any_rules_leave_out_what_git_leaves_out(tree: Path, rules: dict[str, str]) -> None:
    write_rules(tree, rules)
    assert by_us(tree) == by_git(tree)


@pytest.mark.parametrize(
    ("rules", "path", "is_left_out"),
    [
        ({"": "ab"}, "a/b/ab", True),
        ({"": "/ab"}, "ab", True),
        ({"": "/ab"}, "a/ab", False),
        ({"": "a/"}, "a/b/ab", True),
        ({"": "ab/"}, "ab", False),
        ({"": "a/**/ab"}, "a/ab", True),
        ({"": "*\n!*/\n!ab"}, "a/b/ab", False),
        ({"": "*\n!*/\n!ab"}, "a/b/b.a", True),
        ({"": "a\n!a/ab"}, "a/ab", True),
        ({"": "ab", "a": "!ab"}, "a/ab", False),
        ({"": "ab", "a": "!ab"}, "b/ab", True),
        ({"": "[a\nab"}, "ab", True),
        ({"": "\ufeffab"}, "ab", True),
        ({"": "b.a\fab"}, "ab", False),
        ({"": "a**/a"}, "a/b/a", True),
        ({"": "b**\n!*/"}, "b/ab", False),
        ({"": "/b**"}, "b/ab", True),
        ({"": "a/**"}, "a", False),
    ],
    ids=[
        "a-name-at-any-depth", "anchored-at-the-top", "anchored-not-below", "a-folder-hides-what-it-holds",
        "a-slash-means-folders", "two-stars-are-no-folder-too", "all-but-these", "and-not-those",
        "nothing-comes-back-out-of-a-folder", "the-inner-file-decides", "the-inner-file-only-inside",
        "a-broken-rule-spoils-no-other", "a-mark-at-the-beginning", "only-a-newline-ends-a-line",
        "two-stars-behind-plain-text", "two-stars-in-a-name-are-one", "two-stars-behind-plain-text-of-a-path",
        "two-stars-hide-what-a-folder-holds-alone",
    ],
)  # fmt: skip
def test_rules(tree: Path, rules: dict[str, str], path: str, is_left_out: bool) -> None:
    write_rules(tree, rules)
    assert (path in by_us(tree)) is is_left_out
    assert (path in by_git(tree)) is is_left_out


def test_an_ignore_file_is_read_after_gits_own(tree: Path) -> None:
    write_rules(tree, {"": "ab\n"})
    (tree / ".ignore").write_text("!ab\nb.a\n")
    try:
        rules = IgnoreRules(str(tree))
        assert not rules.covers(f"{tree}/ab", is_folder=False)
        assert rules.covers(f"{tree}/b.a", is_folder=False)
    finally:
        (tree / ".ignore").unlink()


def test_the_last_of_thousands_of_rules_decides(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("".join(f"*{number}*x*\n!{number}*/y*\n" for number in range(3000)))
    rules = IgnoreRules(str(tmp_path))
    assert rules.covers(f"{tmp_path}/a2999bx", is_folder=False)
    assert rules.covers(f"{tmp_path}/a/y12x", is_folder=False)
    assert not rules.covers(f"{tmp_path}/7/y7x", is_folder=False)
    assert not rules.covers(f"{tmp_path}/2999/y2999x", is_folder=False)


def test_rules_too_large_for_one_set_still_count(tmp_path: Path) -> None:
    large = "".join(f"{'?*' * 2000}{number}\n" for number in range(50))
    (tmp_path / ".gitignore").write_text(f"ab\n{large}")
    rules = IgnoreRules(str(tmp_path))
    assert len(rules.layers) > 1
    assert rules.covers(f"{tmp_path}/ab", is_folder=False)


def test_a_hostile_rule_comes_back(tmp_path: Path) -> None:
    """A backtracking engine takes minutes."""
    (tmp_path / ".gitignore").write_text("*a" * 1000 + "c\n")
    assert not IgnoreRules(str(tmp_path)).covers(f"{tmp_path}/{'a' * 200}", is_folder=False)


@pytest.mark.parametrize("kind", ["folder", "pipe", "link", "nothing"])
def test_what_is_no_ignore_file_is_none(tmp_path: Path, kind: str) -> None:
    (tmp_path / "rules").write_text("*\n")
    ignore = tmp_path / ".gitignore"
    if kind == "folder":
        ignore.mkdir()
    elif kind == "pipe":
        os.mkfifo(ignore)
    elif kind == "link":
        ignore.symlink_to("rules")
    assert not IgnoreRules(str(tmp_path)).covers(f"{tmp_path}/x", is_folder=False)


def test_rules_of_two_thousand_folders_inside_each_other_are_no_recursion(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("x\n")
    rules = IgnoreRules(str(tmp_path))
    for _ in range(2000):
        rules = IgnoreRules(str(tmp_path), rules)
    assert rules.covers(f"{tmp_path}/x", is_folder=False)
