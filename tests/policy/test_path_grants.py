"""A grant reaches what lies in its folder and nothing beside; what is protected, no grant reaches."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from toolkeep.policy.path_grants import Folder, ProtectedPaths
from toolkeep.policy.resolved_path import ResolvedPath, resolve

pytestmark = pytest.mark.spec("POL-1", "POL-7")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """docs/a.txt, docs-old/a.txt and .git/config; a state folder beside it."""
    folder = Path(os.path.realpath(tmp_path)) / "base"
    for name in ("docs/a.txt", "docs-old/a.txt", ".git/config", "../state/keys/log.key"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


@pytest.fixture
def state(base: Path) -> Path:
    return base.parent / "state"


def at(text: str | Path, base: Path) -> ResolvedPath:
    return resolve(str(text), str(base), may_be_missing=True)


def grants(scope: str, text: str | Path, base: Path) -> bool:
    with at(text, base) as place:
        return Folder(scope, str(base)).contains(place)


def objects(state: Path | None, text: str | Path, base: Path, *, writes: bool) -> bool:
    protected = ProtectedPaths(None if state is None else str(state))
    with at(text, base) as place:
        return protected.objection(place, writes=writes) is not None


# --- grants --------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["docs", "./docs", "docs/", "docs/../docs", "../base/docs", ".", "/"])
@pytest.mark.parametrize("text", ["docs", "docs/", "docs/a.txt", "docs/new/deep.txt"])
def test_a_folder_contains_itself_and_what_is_below(base: Path, scope: str, text: str) -> None:
    assert grants(scope, text, base)


@pytest.mark.parametrize(
    "text",
    ["docs-old", "docs-old/a.txt", "docsx", "doc", ".", "..", "/", "docs/../docs-old/a.txt", "/etc/passwd"],
)
def test_a_folder_contains_nothing_beside_or_above(base: Path, text: str) -> None:
    assert not grants("docs", text, base)


@pytest.mark.parametrize("text", ["/", "/etc", "/new", "docs/a.txt"])
def test_the_root_contains_everything(base: Path, text: str) -> None:
    assert grants("/", text, base)


@pytest.mark.parametrize("scope", ["", "*", "docs/*", "\0", "/proc", "/proc/self/root", "~"])
def test_a_scope_that_names_no_folder_contains_nothing(base: Path, scope: str) -> None:
    assert not grants(scope, "docs/a.txt", base)


def test_a_star_is_no_folder_even_where_one_is_called_so(base: Path) -> None:
    (base / "*").mkdir()
    assert not grants("*", "*", base)
    assert grants("./*", "*/f", base)


def test_a_file_contains_itself_alone(base: Path) -> None:
    assert grants("docs/a.txt", "docs/a.txt", base)
    assert not grants("docs/a.txt", "docs", base)
    assert not grants("docs/a.txt", "docs/a.txt2", base)


def test_a_link_out_of_the_folder_is_outside(base: Path) -> None:
    (base / "docs" / "innocent.txt").symlink_to("../docs-old/a.txt")
    (base / "docs" / "up").symlink_to("..")
    assert not grants("docs", "docs/innocent.txt", base)
    assert not grants("docs", "docs/up/docs-old/a.txt", base)
    assert grants("docs", "docs/up/docs/a.txt", base)


def test_a_grant_of_a_link_is_one_of_where_it_leads(base: Path) -> None:
    (base / "link").symlink_to("docs")
    assert grants("link", "docs/a.txt", base)
    assert grants("link", "link/a.txt", base)
    assert not grants("link", "docs-old/a.txt", base)


def test_a_folder_that_does_not_exist_yet_contains_what_will_be_in_it(base: Path) -> None:
    assert grants("out", "out", base)
    assert grants("out", "out/f", base)
    assert not grants("out", "output", base)
    assert not grants("out", "docs/a.txt", base)


def test_a_grant_of_a_link_to_nowhere_contains_nothing(base: Path) -> None:
    (base / "dangling").symlink_to("out")
    assert not grants("dangling", "out", base)


def test_a_grant_of_a_link_that_was_turned_does_not_reach_where_it_led(base: Path) -> None:
    (base / "link").symlink_to("docs")
    grant = Folder("link", str(base))
    with at("docs/a.txt", base) as place:
        assert grant.contains(place)
        (base / "link").unlink()
        (base / "link").symlink_to("docs-old")
        assert not grant.contains(place)


@pytest.mark.parametrize(("written", "counts"), [("", False), ("docs", True), ("above", False)])
def test_a_grant_by_way_of_a_link_that_a_tool_may_replace_contains_nothing(
    base: Path, written: str, counts: bool
) -> None:
    (base / "above").mkdir()
    (base / "above" / "link").symlink_to("../docs")
    grant = Folder("above/link", str(base), lambda: [str(base.resolve() / written)])
    with at("docs/a.txt", base) as place:
        assert grant.contains(place) is counts
    assert (grant.real_path() is not None) is counts


def test_asking_leaves_no_descriptor_open(base: Path, state: Path) -> None:
    with at("docs/a.txt", base) as place:
        before = len(list(Path("/proc/self/fd").iterdir()))
        (base / "link").symlink_to("docs")
        for scope in ("docs", "out", "/", "*", "\0", "/proc/self/root", "link"):
            Folder(scope, str(base), lambda: [os.path.realpath(base)]).contains(place)
            ProtectedPaths(str(state)).objection(place, writes=True)
        assert len(list(Path("/proc/self/fd").iterdir())) == before


# --- the state -----------------------------------------------------------------------------------


@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("text", ["", "keys", "keys/log.key", "new", "keys/new/deep", "keys/../keys"])
def test_the_state_may_be_neither_read_nor_written(base: Path, state: Path, text: str, writes: bool) -> None:
    assert objects(state, state / text, base, writes=writes)
    assert objects(state, f"../state/{text}", base, writes=writes)


def test_the_objection_does_not_say_where_the_state_lies(base: Path, state: Path) -> None:
    (base / "link").symlink_to(state)
    with at("link/keys", base) as place:
        assert ProtectedPaths(str(state)).objection(place, writes=False) == (
            "'link/keys' belongs to the state of toolkeep, which no tool may touch"
        )


@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("text", ["docs/a.txt", "docs/new", "../stately", "../state.txt", "../other/state"])
def test_what_lies_beside_the_state_is_left_alone(base: Path, state: Path, text: str, writes: bool) -> None:
    assert not objects(state, text, base, writes=writes)


def test_a_folder_above_the_state_may_be_listed_and_not_written(base: Path, state: Path) -> None:
    for text in ("..", "/", "../.."):
        assert not objects(state, text, base, writes=False)
        assert objects(state, text, base, writes=True)


def test_a_link_to_the_state_does_not_hide_it(base: Path, state: Path) -> None:
    (base / "link").symlink_to(state)
    (base / "deeper").symlink_to(state / "keys")
    for text in ("link", "link/keys/log.key", "link/new", "deeper", "deeper/log.key"):
        assert objects(state, text, base, writes=False)


def test_a_state_folder_that_is_named_through_a_link_is_protected_where_it_is(
    base: Path, state: Path
) -> None:
    named = base.parent / "named"
    named.symlink_to(state)
    assert objects(named, state / "keys", base, writes=False)
    assert objects(named, named / "keys", base, writes=False)


@pytest.mark.parametrize("text", ["../STATE", "../State/keys/log.key"])
def test_another_case_of_the_name_is_taken_for_the_state(base: Path, state: Path, text: str) -> None:
    """Where a file system ignores case it is the state; elsewhere nobody misses it."""
    assert objects(state, text, base, writes=False)


def test_a_hard_link_to_a_file_of_the_state_does_not_hide_it(base: Path, state: Path) -> None:
    (base / "docs" / "innocent").hardlink_to(state / "keys" / "log.key")
    assert objects(state, "docs/innocent", base, writes=False)


def test_a_hard_link_to_any_other_file_is_left_alone(base: Path, state: Path) -> None:
    (base / "docs" / "second").hardlink_to(base / "docs" / "a.txt")
    assert not objects(state, "docs/second", base, writes=True)


def test_a_state_folder_that_does_not_exist_yet_is_protected(base: Path) -> None:
    state = base.parent / "home" / "toolkeep" / "hash"
    for text in (state, state / "rules", base.parent / "HOME" / "toolkeep" / "Hash"):
        assert objects(state, text, base, writes=True)
        assert objects(state, text, base, writes=False)
    assert objects(state, state.parent, base, writes=True)
    assert not objects(state, state.parent, base, writes=False)
    assert not objects(state, state.parent / "other", base, writes=True)


@pytest.mark.parametrize("writes", [False, True])
def test_a_state_folder_that_cannot_be_reached_closes_everything(base: Path, writes: bool) -> None:
    loop = base.parent / "loop"
    loop.symlink_to("loop")
    assert objects(loop / "state", "docs/a.txt", base, writes=writes)


def test_a_keep_without_state_protects_the_names_alone(base: Path) -> None:
    assert not objects(None, "docs/a.txt", base, writes=True)
    assert not objects(None, "/", base, writes=True)
    assert objects(None, ".git/config", base, writes=True)


def test_a_state_folder_that_is_not_absolute_is_our_own_mistake() -> None:
    with pytest.raises(ValueError, match="absolute"):
        ProtectedPaths("state")


MOUNTED = """
import subprocess, sys
from toolkeep.policy.path_grants import ProtectedPaths
from toolkeep.policy.resolved_path import resolve

shown, alias, state, text, writes = sys.argv[1:]
subprocess.run(["mount", "--bind", shown, alias], check=True)
with resolve(text, alias, may_be_missing=True) as place:
    assert place.path.startswith(alias), place.path
    print(ProtectedPaths(state).objection(place, writes=writes == "writes") is not None)
"""


@pytest.mark.parametrize(
    ("shown", "text", "writes", "expected"),
    [
        ("state", ".", "reads", True),
        ("state", "keys/log.key", "reads", True),
        ("state", "keys/new/deep", "reads", True),
        (".", "state/keys", "reads", True),
        (".", ".", "writes", True),
        (".", ".", "reads", False),
        (".", "base/docs/a.txt", "writes", False),
        ("base", "docs/a.txt", "writes", False),
    ],
)
def test_a_mount_of_the_state_elsewhere_does_not_hide_it(
    base: Path, state: Path, shown: str, text: str, writes: str, expected: bool
) -> None:
    assert mounted(base, state, shown, text, writes) is expected


@pytest.mark.parametrize(
    ("text", "writes", "expected"),
    [
        ("toolkeep/hash", "reads", True),
        ("toolkeep/hash/rules", "reads", True),
        ("toolkeep", "writes", True),
        ("toolkeep", "reads", False),
        ("toolkeep/other", "writes", False),
    ],
)
def test_a_mount_of_where_the_state_will_be_does_not_hide_it(
    base: Path, text: str, writes: str, expected: bool
) -> None:
    (base.parent / "home").mkdir()
    state = base.parent / "home" / "toolkeep" / "hash"
    assert mounted(base, state, "home", text, writes) is expected


def mounted(base: Path, state: Path, shown: str, text: str, writes: str) -> bool:
    """Whether there is an objection in a process of its own that has a folder mounted elsewhere."""
    alias = base.parent.parent / f"{base.parent.name}-alias"
    alias.mkdir()
    unshare = ["unshare", "--map-root-user", "--mount"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        if os.environ.get("CI"):
            pytest.fail("this machine gives no mount namespace")
        pytest.skip("this machine gives no mount namespace")
    arguments = [str(base.parent / shown), str(alias), str(state), text, writes]
    command = [*unshare, sys.executable, "-c", MOUNTED, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout == "True\n"


# --- names ---------------------------------------------------------------------------------------

KEPT = [
    ".git/HEAD",
    ".git/commondir",
    ".git/refs/heads/hooks",
    ".git/configuration",
    ".agent",
    ".agent/config.yml",
    "docs/.agent/deep/new.yml",
    ".AGENT/config.yml",
    ".Agent",
    ".agent./config.yml",
    ".agent /config.yml",
    ".a\u200dgent/config.yml",
    "\u2024agent/config.yml",
    "toolkeep.lock",
    "docs/ToolKeep.LOCK",
    "toolkeep.loc\u212a",
    ".git",
    ".git/hooks",
    ".git/hooks/pre-commit",
    ".git/config",
    ".git/config.worktree",
    ".GIT/config",
    ".git/Hooks/pre-commit",
    ".g\u200cit/config",
    ".git/modules/sub/config",
    ".git/worktrees/tree/config.worktree",
    "docs/.git/hooks/x",
    "docs/.git",
    "docs/.git/x/.git/config",
]


@pytest.mark.parametrize("text", KEPT)
def test_what_decides_what_runs_may_be_read_and_not_written(base: Path, state: Path, text: str) -> None:
    assert objects(state, text, base, writes=True)
    assert not objects(state, text, base, writes=False)


@pytest.mark.parametrize(
    "text",
    [
        "agent/config.yml",
        ".agents",
        "x.agent",
        "toolkeep.lock.txt",
        "mytoolkeep.lock",
        ".gitignore",
        ".github/hooks/x",
        "hooks/pre-commit",
        "config",
        "docs/x.git/config",
    ],
)
def test_names_that_only_look_alike_may_be_written(base: Path, state: Path, text: str) -> None:
    assert not objects(state, text, base, writes=True)


def test_a_link_to_what_is_kept_does_not_hide_it(base: Path, state: Path) -> None:
    (base / "docs" / "settings").symlink_to("../.git/config")
    (base / "docs" / "repository").symlink_to("../.git")
    for text in ("docs/settings", "docs/repository", "docs/repository/hooks/x"):
        assert objects(state, text, base, writes=True)


def test_the_objection_says_why(base: Path, state: Path) -> None:
    with at(".git/config", base) as place:
        assert ProtectedPaths(str(state)).objection(place, writes=True) == (
            "'.git/config' may not be written by any tool: it decides what runs"
        )
