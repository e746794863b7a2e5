"""The built-in tools as a model calls them: through the keep, in the sandbox, inside what the agent holds."""

import os
import subprocess
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toolkeep import Code, Keep, ToolResult, open_keep
from toolkeep.approval.question import Answer, Question

PERMISSIONS = [
    f"tool.{name}" for name in ("filesystem.read", "filesystem.write", "system.run", "vcs.read", "vcs.write")
]


async def agree(question: Question) -> Answer:
    return Answer(verdict="approve", approver="eve", way="program")


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "a.py").write_text("one = 1\ntwo = 2\n")
    (tmp_path / "secret").write_text("loot")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def keep(work: Path) -> Iterator[Keep]:
    with open_keep(approver=agree) as keep:
        capabilities = [
            "fs.read:.",
            "fs.write:.",
            "process.spawn:ls",
            "process.spawn:sh",
            "process.spawn:/usr/bin/git",
        ]
        keep.declare_agent("dev", capabilities=capabilities, permissions=PERMISSIONS)
        yield keep


def call(keep: Keep, name: str, *, agent: str = "dev", **arguments: Any) -> ToolResult:
    return keep.call_sync(name, arguments, agent=agent)


def git(*arguments: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], check=True, capture_output=True
    )


# --- files ------------------------------------------------------------------------------------------


def test_files_are_read_written_edited_listed_and_searched(keep: Keep, work: Path) -> None:
    assert call(keep, "write_file", path="src/b.py", content="three = 3\n").ok
    edited = call(keep, "edit_code", path="src/b.py", old_content="= 3", new_content="= 33")
    assert edited.value == "'src/b.py' was edited: line 1 became line 1"
    assert call(keep, "read_file", path="src/b.py").value == "three = 33\n"
    listed = call(keep, "list_directory", path="src")
    assert listed.value == "a.py  16 bytes\nb.py  11 bytes"
    found = call(keep, "grep_search", path=".", pattern="^t")
    assert found.value == "src/a.py\n  2: two = 2\n\nsrc/b.py\n  1: three = 33"
    assert {edited.isolation, listed.isolation, found.isolation} == {"strict"}
    assert (work / "src" / "b.py").read_text() == "three = 33\n"


@pytest.mark.spec("TLS-2", "POL-1")
def test_a_command_runs_without_a_grant_to_write_and_then_writes_nothing(keep: Keep, work: Path) -> None:
    capabilities = ["fs.read:.", "process.spawn:ls", "process.spawn:sh"]
    keep.declare_agent("reader", capabilities=capabilities, permissions=PERMISSIONS)
    assert call(keep, "run_command", agent="reader", command="ls src").value == "a.py\n[exit status 0]"
    script = "echo x > src/a.py; echo x > src/b.py; echo x > ../secret; mkdir src/c"
    tried = call(keep, "run_command", agent="reader", command=f"sh -c '{script}'")
    assert tried.ok, tried.text
    assert "[exit status 0]" not in tried.text
    assert (work / "src" / "a.py").read_text() == "one = 1\ntwo = 2\n"
    assert [path.name for path in (work / "src").iterdir()] == ["a.py"]
    assert (work.parent / "secret").read_text() == "loot"
    keep.declare_agent("blind", capabilities=["process.spawn:ls"], permissions=PERMISSIONS)
    assert call(keep, "run_command", agent="blind", command="ls").code is Code.NOT_PERMITTED


def test_whoever_only_reads_reads_the_working_folder_and_writes_nothing(keep: Keep, work: Path) -> None:
    assert call(keep, "read_file", agent="local", path="src/a.py").value == "one = 1\ntwo = 2\n"
    refused = call(keep, "write_file", agent="local", path="src/a.py", content="x")
    assert refused.code is Code.NOT_PERMITTED
    assert call(keep, "read_file", agent="local", path="../secret").code is Code.NOT_PERMITTED
    assert (work / "src" / "a.py").read_text() == "one = 1\ntwo = 2\n"


def test_a_link_out_of_the_folder_leads_nowhere(keep: Keep, work: Path) -> None:
    (work / "link").symlink_to("../secret")
    result = call(keep, "read_file", path="link")
    assert (result.code, "loot" in result.text) == (Code.NOT_PERMITTED, False)


def test_each_call_reaches_its_own_file(keep: Keep, work: Path) -> None:
    for number in range(12):
        (work / f"{number}.txt").write_text(str(number))
    assert [call(keep, "read_file", path=f"{number}.txt").value for number in range(12)] == list(
        map(str, range(12))
    )


# --- what no tool may write -------------------------------------------------------------------------


@pytest.mark.spec("POL-7")
@pytest.mark.parametrize(
    "path",
    [
        ".agent/config.yml",
        "toolkeep.lock",
        ".git/hooks/pre-commit",
        ".git/config",
        "sub/.git/hooks/x",
        ".git/commondir",
        ".git/index",
        "sub/.git/x",
        ".GIT/commondir",
    ],
)
def test_what_no_tool_may_write_is_not_written(path: str, keep: Keep, work: Path) -> None:
    git("init", "-q", ".")
    git("init", "-q", "sub")
    (work / ".agent").mkdir()
    result = call(keep, "write_file", path=path, content="x")
    assert result.code is Code.NOT_PERMITTED, result.text


HOSTILE = """
mkdir .agent/x 2>/dev/null && echo made
echo x > .agent/config.yml && echo wrote
mv .agent elsewhere && echo moved
echo x > .git/hooks/pre-commit && echo hooked
echo x >> .git/config && echo configured
mv .git gone && echo moved
rm -r .git/hooks && echo removed
mv sub sub2 && echo moved
echo x > free && echo free
"""


@pytest.mark.spec("POL-7")
def test_a_program_that_may_write_the_folder_cannot_write_it_either(keep: Keep, work: Path) -> None:
    git("init", "-q", ".")
    git("init", "-q", "sub")
    (work / ".agent").mkdir()
    (work / "hostile.sh").write_text(HOSTILE)
    result = call(keep, "run_command", command="sh hostile.sh", capture_stderr=False)
    assert result.value == "free\n[exit status 0]", result.text
    assert (work / "free").read_text() == "x\n"


# --- programs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "folder"), [("python", "."), (".venv/bin/python", "."), (".venv/bin/python", "src")]
)
def test_a_python_has_the_packages_of_its_environment_however_it_is_called(
    work: Path, monkeypatch: pytest.MonkeyPatch, word: str, folder: str
) -> None:
    venv.create(".venv", symlinks=True)
    monkeypatch.setenv("PATH", f"{work}/.venv/bin:{os.environ['PATH']}")
    with open_keep(approver=agree) as keep:
        capabilities = ["fs.read:.", "fs.write:.", "process.spawn:.venv/bin/python"]
        keep.declare_agent("dev", capabilities=capabilities, permissions=PERMISSIONS)
        command = f"{word} -c 'import sys; print(sys.executable, sys.prefix)'"
        result = call(keep, "run_command", command=command, working_directory=folder)
    assert result.value == f"{work}/.venv/bin/python {work}/.venv\n[exit status 0]", result.text


def test_a_granted_program_runs_in_the_folder_and_sees_nothing_else(keep: Keep, work: Path) -> None:
    assert call(keep, "run_command", command="ls src").value == "a.py\n[exit status 0]"
    (work.parent / "beside").mkdir()
    # The way to what is granted has names, and nothing beside it.
    outside = call(keep, "run_command", command=f"ls {work.parent}")
    assert outside.value == f"{work.name}\n[exit status 0]", outside.text
    beside = call(keep, "run_command", command=f"ls {work.parent}/beside")
    assert "No such file" in beside.value, beside.text


def test_a_program_that_is_not_granted_is_not_started(keep: Keep) -> None:
    assert call(keep, "run_command", command="cat src/a.py").code is Code.NOT_PERMITTED
    by_another = call(keep, "run_command", command="sh -c 'cat src/a.py'")
    assert "Permission denied" in by_another.text or "not found" in by_another.text, by_another.text


@pytest.mark.parametrize("command", ["ls | ls", "ls > x", "ls; ls", "ls $HOME", "ls *", "ls `ls`", "ls &&ls"])
def test_what_a_shell_would_do_is_refused_with_a_hint(command: str, keep: Keep) -> None:
    result = call(keep, "run_command", command=command)
    assert "there is no shell" in result.text, result.text
    assert not result.ok


def test_a_program_ends_with_its_time(keep: Keep) -> None:
    result = call(keep, "run_command", command="sh -c 'while :; do :; done'", timeout_seconds=1)
    assert result.value == "[no output, stopped after 1 s: it did not end in time]"


# --- git --------------------------------------------------------------------------------------------


def test_git_tools_work_on_a_repository(keep: Keep, work: Path) -> None:
    git("init", "-q", "-b", "main", ".")
    git("config", "user.name", "Ada")
    git("config", "user.email", "ada@example.org")
    assert call(keep, "git_commit", message="First", files=["src/a.py"]).ok
    (work / "src" / "a.py").write_text("one = 11\n")
    assert call(keep, "git_status").value == "## main\n M src/a.py\n"
    assert "-one = 1\n" in call(keep, "git_diff").value
    assert call(keep, "git_log").value.endswith(" Ada: First\n")


def test_a_planted_program_is_not_started(keep: Keep, work: Path) -> None:
    git("init", "-q", ".")
    git("config", "user.name", "Ada")
    git("config", "user.email", "ada@example.org")
    planted = work / "planted.sh"
    planted.write_text(f"#!/bin/sh\necho x > {work}/marker\n")
    planted.chmod(0o755)
    for setting in ("core.fsmonitor", "core.editor", "filter.x.clean", "diff.x.textconv", "diff.external"):
        git("config", setting, str(planted))
    (work / ".gitattributes").write_text("* filter=x diff=x\n")
    (work / ".git" / "hooks" / "pre-commit").write_text(planted.read_text())
    (work / ".git" / "hooks" / "pre-commit").chmod(0o755)
    for name in ("git_status", "git_diff", "git_log"):
        call(keep, name)
    call(keep, "git_commit", message="x", files=["src/a.py"])
    assert not (work / "marker").exists()


READERS = ("git_status", "git_diff", "git_log")


def test_the_default_agent_looks_at_a_repository_without_a_spawn_grant(work: Path) -> None:
    git("init", "-q", "-b", "main", ".")
    git("add", "src/a.py")
    git("commit", "-q", "-m", "First")
    planted = work / "planted.sh"
    planted.write_text(f"#!/bin/sh\necho x > {work}/marker\n")
    planted.chmod(0o755)
    git("config", "core.fsmonitor", str(planted))
    git("config", "diff.external", str(planted))
    with open_keep() as keep:
        results = [call(keep, name, agent="local") for name in READERS]
        assert [result.ok for result in results] == [True] * 3, [result.text for result in results]
        assert results[2].value.endswith(" a: First\n")
        assert call(keep, "run_command", agent="local", command="git log").code is Code.NOT_PERMITTED
    assert not (work / "marker").exists()


def test_a_repository_leads_git_to_no_folder_that_is_not_granted(work: Path, tmp_path: Path) -> None:
    """By a file in the place of .git, by borrowed objects, an included configuration or another work tree."""
    outside = tmp_path / "outside"
    git("init", "-q", "-b", "main", str(outside))
    (outside / "loot").write_text("loot\n")
    git("-C", str(outside), "add", "loot")
    git("-C", str(outside), "commit", "-q", "-m", "The loot")
    commit = subprocess.run(
        ["git", "-C", outside, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    (work / "linked").mkdir()
    (work / "linked" / ".git").write_text(f"gitdir: {outside}/.git\n")
    git("init", "-q", "-b", "main", "borrowing")
    (work / "borrowing/.git/objects/info/alternates").write_text(f"{outside}/.git/objects\n")
    (work / "borrowing/.git/refs/heads/main").write_text(f"{commit}\n")
    git("init", "-q", "-b", "main", "including")
    (work / "including/.git/config").write_text(
        f"[include]\npath = {tmp_path}/secret\n[core]\nworktree = {outside}\n"
    )
    with open_keep() as keep:
        for name in READERS:
            for folder in ("linked", "borrowing", "including"):
                said = call(keep, name, agent="local", path=folder).text
                assert "loot" not in said, (name, folder, said)


def test_a_file_that_git_would_change_on_its_way_in_is_not_committed(keep: Keep, work: Path) -> None:
    git("init", "-q", ".")
    (work / ".gitattributes").write_text("*.bin filter=lfs\n")
    (work / "src" / "a.bin").write_text("large")
    for files in (["src/a.bin"], ["src"], ["."], ["./src/"]):
        result = call(keep, "git_commit", message="x", files=files)
        assert "'src/a.bin' goes through a filter" in result.text, result.text
    assert call(keep, "git_status").value.count("??") == 2


def test_git_tools_start_git_and_nothing_else_that_the_agent_holds(keep: Keep, work: Path) -> None:
    git("init", "-q", ".")
    assert call(keep, "git_status").ok
    assert call(keep, "run_command", command="ls").ok
    assert [name for name in programs_of(keep, "git_status") if name.startswith(("git", "ls", "dash"))] == [
        "git",
        "git-core",
    ]
    assert {"git", "ls"} <= set(programs_of(keep, "run_command"))


def programs_of(keep: Keep, name: str) -> list[str]:
    """What the workers of a tool may execute."""
    tool = keep.look_up(name, agent="dev")
    keys: Any = keep._pipeline.sandbox._keys
    return [
        Path(path).name
        for key in keys
        if tool is not None and key.definition == tool.definition_hash
        for path in key.grant[0].grant.run
    ]


# --- what attackers found ---------------------------------------------------------------------------


def test_the_state_is_not_seen_from_a_folder_above_it(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLKEEP_HOME", str(tmp_path / "above" / "state"))
    with open_keep() as keep:
        keep.declare_agent("dev", capabilities=[f"fs.read:{tmp_path}/above"], permissions=PERMISSIONS)
        (tmp_path / "above").mkdir(exist_ok=True)
        (tmp_path / "above" / "free").write_text("PRIVATE KEY of nobody")
        assert call(keep, "read_file", path=f"{tmp_path}/above/free").ok  # the log has its key now
        keys = [path for path in (tmp_path / "above" / "state").rglob("*") if path.name == "log.key"]
        found = call(keep, "grep_search", path=f"{tmp_path}/above", pattern="PRIVATE")
        listed = call(keep, "list_directory", path=f"{tmp_path}/above", recursive=True, max_depth=9)
    assert keys, "there is no key to be found"
    assert "free" in found.value and "log.key" not in found.value  # noqa: PT018 -- one thing
    assert "log.key" not in listed.value


@pytest.mark.spec("POL-7")
def test_what_the_host_replaced_is_held_down_in_the_next_call_too(keep: Keep, work: Path) -> None:
    """A mount goes with the file that it lies on; workers that wait have mounts of before."""
    git("init", "-q", ".")
    (work / "toolkeep.lock").write_text("old")
    (work / "x.sh").write_text(
        "echo x >> toolkeep.lock; echo x >> .git/config; echo x > .git/hooks/x; echo done"
    )
    for _ in range(3):
        assert call(keep, "run_command", command="sh x.sh", capture_stderr=False).ok
    time.sleep(1)
    (work / "new").write_text("new")
    (work / "new").replace(work / "toolkeep.lock")
    git("config", "foo.bar", "1")
    assert call(keep, "run_command", command="sh x.sh", capture_stderr=False).ok
    assert (work / "toolkeep.lock").read_text() == "new"
    assert "x" not in (work / ".git" / "config").read_text().splitlines()


def test_a_commit_follows_no_link_out_of_its_repository(keep: Keep, work: Path) -> None:
    git("init", "-q", ".")
    git("init", "-q", "n")
    for name in ("user.name", "user.email"):
        git("config", name, "a@b")
    before = (work / "n" / ".git" / "config").read_text()
    (work / ".git" / "COMMIT_EDITMSG").symlink_to("../n/.git/config")
    result = call(keep, "git_commit", message="[core]", files=["src/a.py"])
    assert "contains the link 'COMMIT_EDITMSG'" in result.text, result.text
    assert (work / "n" / ".git" / "config").read_text() == before


def test_a_difference_is_never_one_of_files_outside(keep: Keep, work: Path) -> None:
    git("init", "-q", ".")
    (work / "--").write_text("x")
    for revision in ("/usr/lib/os-release", "../secret", "./x"):
        result = call(keep, "git_diff", revision=revision)
        assert "is not a revision" in result.text, result.text


def test_a_link_on_the_way_to_a_new_file_is_not_followed(work: Path) -> None:
    from toolkeep.definitions.tool_context import ToolFailed
    from toolkeep.tools.write_file import write_file

    (work / "real").mkdir()
    (work / "w").symlink_to("real")
    with pytest.raises(ToolFailed):
        write_file(("w/x/y", f"{work}/w/x/y"), "x")
    assert list((work / "real").iterdir()) == []
