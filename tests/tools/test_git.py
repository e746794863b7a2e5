"""The git tools start nothing that a repository names, and say what git says in a form that fits a model."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from toolkeep.definitions.tool_context import ToolFailed
from toolkeep.tools.git import git_commit, git_diff, git_log, git_status

_PLAIN = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_DATE": "2026-01-02T03:04:05Z",
    "GIT_COMMITTER_DATE": "2026-01-02T03:04:05Z",
    "LC_ALL": "C.UTF-8",
}


def plain(folder: Path, *arguments: str | bytes, is_checked: bool = True) -> str:
    """Git as anybody runs it."""
    done = subprocess.run(
        ["git", "-C", folder, *arguments], env=_PLAIN, capture_output=True, check=is_checked
    )
    return (done.stdout + done.stderr).decode("utf-8", "replace")


def new_repository(root: Path) -> Path:
    root.mkdir(parents=True)
    plain(root, "init", "-q", "-b", "main", "--template=")
    plain(root, "config", "user.name", "Ada")
    plain(root, "config", "user.email", "ada@example.org")
    (root / "a.txt").write_text("one\ntwo\n")
    plain(root, "add", "a.txt")
    plain(root, "commit", "-q", "-m", "The first")
    return root


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return new_repository(Path(os.path.realpath(tmp_path)) / "repository")


def pair(folder: Path) -> tuple[str, str]:
    return ("repository", str(folder))


def refusal(call: Callable[[], str]) -> str:
    with pytest.raises(ToolFailed) as caught:
        call()
    return str(caught.value)


# --- what the tools say --------------------------------------------------------------------------


def test_a_clean_repository_has_nothing_to_say(repository: Path) -> None:
    assert git_status(pair(repository)) == "## main\n[nothing has changed]"
    assert git_diff(pair(repository)) == "[no differences]"
    assert git_log(pair(repository)).endswith(" 2026-01-02T03:04:05+00:00 Ada: The first\n")


def test_changes_are_told_and_committed(repository: Path) -> None:
    (repository / "a.txt").write_text("one\n2\n")
    (repository / "a file\n.txt").write_text("")
    (repository / "é.txt").write_text("")
    assert git_status(pair(repository)) == '## main\n M a.txt\n?? "a file\\n.txt"\n?? é.txt\n'
    assert git_diff(pair(repository), file="a.txt").endswith("@@ -1,2 +1,2 @@\n one\n-two\n+2\n")
    assert "The second" in git_commit(pair(repository), "The second", files=["a.txt", "é.txt"])
    assert git_status(pair(repository)) == '## main\n?? "a file\\n.txt"\n'
    assert git_log(pair(repository), max_count=1, file="é.txt").endswith("Ada: The second\n")
    assert git_diff(pair(repository), revision="HEAD~1..HEAD", file="a.txt").endswith("-two\n+2\n")


def test_a_message_is_taken_as_it_is(repository: Path) -> None:
    (repository / "a.txt").write_text("")
    git_commit(pair(repository), "# -m 'x' $(date)\n\n--amend", files=["a.txt"])
    assert plain(repository, "log", "-1", "--format=%B") == "# -m 'x' $(date)\n\n--amend\n\n"


def test_a_long_difference_is_cut_in_the_middle(repository: Path) -> None:
    (repository / "a.txt").write_text("".join(f"line {n}\n" for n in range(20_000)))
    said = git_diff(pair(repository))
    assert len(said) < 31_000
    assert "\n+line 0\n" in said
    assert said.endswith("+line 19999\n")
    assert " bytes left out]\n" in said


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (lambda r: git_commit(r, " \n"), "The message of a commit must not be blank"),
        (
            lambda r: git_commit(r, "x"),
            "Nothing is staged, so there is nothing to commit; name the files to commit",
        ),
        (
            lambda r: git_commit(r, "x", files=["none"]),
            "git add did not work (exit status 128):\nfatal: pathspec 'none' did not match any files",
        ),
        (
            lambda r: git_commit(r, "a\0b", files=["a.txt"]),
            "'git' cannot be run: an argument contains a NUL character",
        ),
        (
            lambda r: git_diff(r, revision="--output=/tmp/x"),
            "'--output=/tmp/x' is not a revision: give a branch, a tag, a hash or a range of them",
        ),
        (
            lambda r: git_log(r, revision="a b"),
            "'a b' is not a revision: give a branch, a tag, a hash or a range of them",
        ),
        (
            lambda r: git_log(r, revision="nowhere"),
            "git log did not work (exit status 128):\nfatal: bad revision 'nowhere'",
        ),
        (
            lambda r: git_status((f"{r[0]}/sub", f"{r[1]}/sub")),
            "'repository/sub' is not the top folder of a git repository",
        ),
    ],
    ids=["blank", "nothing", "no-such-file", "nul", "an-option", "two-words", "no-revision", "below"],
)
def test_what_cannot_be_done_is_told(
    repository: Path, call: Callable[[tuple[str, str]], str], answer: str
) -> None:
    (repository / "sub").mkdir()
    if "NUL" in answer:
        (repository / "a.txt").write_text("changed")
    assert refusal(lambda: call(pair(repository))) == answer


def test_nobody_commits_without_a_name(repository: Path) -> None:
    plain(repository, "config", "--remove-section", "user")
    (repository / "a.txt").write_text("")
    hint = "set user.name and user.email in the repository's configuration"
    assert (
        refusal(lambda: git_commit(pair(repository), "x", files=["a.txt"]))
        == f"git does not know who commits: {hint}"
    )


def test_a_lock_of_somebody_else_is_told_without_the_place_of_the_repository(repository: Path) -> None:
    (repository / "a.txt").write_text("")
    (repository / ".git" / "index.lock").touch()
    said = refusal(lambda: git_commit(pair(repository), "x", files=["a.txt"]))
    assert said.startswith(
        "git add did not work (exit status 128):\nfatal: Unable to create 'repository/.git/index.lock': File exists."
    )
    assert str(repository) not in said


@pytest.mark.parametrize("beside", ["repository-git", "repository.git", "repository_git", "repositorygit"])
def test_a_folder_whose_name_only_begins_as_the_repository_does_keeps_its_own(
    repository: Path, beside: str
) -> None:
    (repository / "a.txt").write_text("")
    elsewhere = repository.parent / beside
    (repository / ".git").rename(elsewhere)
    (repository / ".git").write_text(f"gitdir: ../{beside}\n")
    (elsewhere / "index.lock").touch()
    said = refusal(lambda: git_commit((".", str(repository)), "x", files=["a.txt"]))
    assert f"Unable to create '{elsewhere}/index.lock'" in said


def test_looking_writes_nothing(repository: Path) -> None:
    (repository / "a.txt").write_text("one\ntwo\n")  # as it was, but newer: git would refresh its index
    before = (repository / ".git" / "index").stat()
    git_status(pair(repository))
    git_diff(pair(repository))
    after = (repository / ".git" / "index").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("kind", ["bare", "nothing", "a file that leads nowhere", "broken"])
def test_what_is_no_repository_is_refused(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "repository"
    root.mkdir()
    if kind == "bare":
        plain(root, "init", "-q", "--bare", "--template=")
    elif kind == "a file that leads nowhere":
        (root / ".git").write_text("gitdir: /nowhere\n")
    elif kind == "broken":
        (root / ".git").mkdir()
        (root / ".git" / "config").write_text("[core\n")
    assert refusal(lambda: git_status(pair(root))) == "'repository' is not the top folder of a git repository"


def test_a_repository_whose_folder_of_git_lies_elsewhere_is_one(repository: Path) -> None:
    (repository / ".git").rename(repository.parent / "elsewhere")
    (repository / ".git").write_text("gitdir: ../elsewhere\n")
    plain(repository, "config", "core.worktree", str(repository.parent))
    assert git_status(pair(repository)) == "## main\n[nothing has changed]"


# --- what a repository plants --------------------------------------------------------------------

HOOKS = [
    "applypatch-msg", "commit-msg", "fsmonitor-watchman", "post-applypatch", "post-checkout", "post-commit",
    "post-index-change", "post-merge", "post-receive", "post-rewrite", "post-update", "pre-applypatch",
    "pre-auto-gc", "pre-commit", "pre-merge-commit", "pre-push", "pre-rebase", "pre-receive",
    "prepare-commit-msg", "proc-receive", "push-to-checkout", "reference-transaction", "sendemail-validate",
    "update",
]  # fmt: skip
PROGRAMS = [
    "alias.add", "alias.commit", "alias.config", "alias.diff", "alias.log", "alias.rev-parse", "alias.status",
    "browser.x.cmd", "core.alternateRefsCommand", "core.askPass", "core.editor", "core.fsmonitor",
    "core.gitProxy", "core.pager", "core.sshCommand", "credential.helper", "credential.https://x.helper",
    "diff.external", "diff.x.command", "diff.x.textconv", "difftool.x.cmd", "filter.x.clean",
    "filter.x.process", "filter.x.smudge", "gc.recentObjectsHook", "gpg.openpgp.program", "gpg.program",
    "gpg.ssh.defaultKeyCommand", "gpg.ssh.program", "gpg.x509.program", "guitool.x.cmd", "hook.x.command",
    "imap.tunnel", "interactive.diffFilter", "man.x.cmd", "merge.x.driver", "mergetool.x.cmd", "pager.add",
    "pager.commit", "pager.config", "pager.diff", "pager.log", "pager.rev-parse", "pager.status",
    "remote.origin.receivepack", "remote.origin.uploadpack", "sendemail.ccCmd", "sendemail.toCmd",
    "sequence.editor", "submodule.sub.update", "tar.x.command", "trailer.x.cmd", "trailer.x.command",
    "uploadpack.packObjectsHook", "web.browser",
]  # fmt: skip
SWITCHES = {
    "commit.gpgSign": "true", "tag.gpgSign": "true", "log.showSignature": "true", "filter.x.required": "true",
    "submodule.recurse": "true", "status.submoduleSummary": "true", "diff.submodule": "diff", "gc.auto": "1",
    "submodule.sub.ignore": "none", "diff.ignoreSubmodules": "none", "commit.verbose": "true",
    "extensions.partialClone": "origin", "remote.origin.promisor": "true", "protocol.allow": "always",
    "core.attributesFile": "attributes", "hook.x.event": "pre-commit", "trailer.x.ifmissing": "add",
}  # fmt: skip


class Trap:
    """A program that leaves a mark when it is started, by any name."""

    def __init__(self, root: Path) -> None:
        self.mark = root / "started"
        self.path = root / "trap"
        self.path.write_text(f'#!/bin/sh\necho "$0 $*" >> {self.mark}\n')
        self.path.chmod(0o755)

    def sprung(self) -> str:
        """What started it, and it is set again."""
        said = self.mark.read_text() if self.mark.exists() else ""
        self.mark.unlink(missing_ok=True)
        return said


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(Path(os.path.realpath(tmp_path)))


def use_every_tool(repository: Path) -> None:
    """All that the tools do; whether git likes it does not matter."""
    calls: list[Callable[[], str]] = [
        lambda: git_status(pair(repository)),
        lambda: git_diff(pair(repository)),
        lambda: git_diff(pair(repository), staged=True),
        lambda: git_diff(pair(repository), revision="HEAD"),
        lambda: git_log(pair(repository)),
        lambda: git_commit(pair(repository), "x"),
        lambda: git_commit(pair(repository), "x", files=["a.txt", "b.x"]),
        lambda: git_commit(pair(repository), "x", files=["."]),
    ]
    for call in calls:
        try:
            call()
        except ToolFailed:
            continue


def test_nothing_that_a_repository_names_is_started(repository: Path, trap: Trap) -> None:
    (repository / ".gitattributes").write_text("* filter=x diff=x merge=x\n")
    (repository / ".gitmodules").write_text(
        '[submodule "sub"]\npath = sub\nurl = ../x\nupdate = !false\nignore = none\n'
    )
    hooks = repository / ".git" / "hooks"
    hooks.mkdir()
    for hook in HOOKS:
        (hooks / hook).symlink_to(trap.path)
    sub = new_repository(repository / "sub")
    plain(sub, "config", "core.fsmonitor", str(trap.path))
    plain(repository, "-c", "core.hooksPath=/dev/null", "add", "sub", is_checked=False)
    config = "".join('[include]\n\tpath = planted\n[includeIf "gitdir:**"]\n\tpath = planted\n' for _ in "x")
    with (repository / ".git" / "config").open("a") as file:
        file.write(config)
    for name in PROGRAMS:
        value = f"!{trap.path}" if name.startswith(("alias.", "submodule.")) else str(trap.path)
        plain(repository, "config", "--file", ".git/planted", name, value)
    for name, value in SWITCHES.items():
        plain(repository, "config", "--file", ".git/planted", name, value)
    plain(repository, "config", "--file", ".git/planted", "remote.origin.url", f"ext::{trap.path}")
    (repository / "a.txt").write_text("changed\n")
    (repository / "b.x").write_text("new\n")
    use_every_tool(repository)
    assert trap.sprung() == ""


def planted_filter(repository: Path, trap: Trap, name: bytes) -> None:
    (repository / ".gitattributes").write_bytes(b"*.txt filter=" + name + b"\n")
    plain(repository, "config", b"filter." + name + b".clean", str(trap.path))


def in_the_worktree_file(repository: Path, trap: Trap) -> None:
    (repository / ".gitattributes").write_text("*.txt filter=x\n")
    plain(repository, "config", "extensions.worktreeConfig", "true")
    plain(repository, "config", "--worktree", "filter.x.clean", str(trap.path))


def in_a_submodule(repository: Path, trap: Trap) -> None:
    sub = new_repository(repository / "sub")
    plain(sub, "config", "core.fsmonitor", str(trap.path))
    plain(repository, "config", "submodule.sub.ignore", "none")
    (repository / ".gitmodules").write_text('[submodule "sub"]\npath = sub\nurl = ../x\n')
    plain(repository, "add", "sub", is_checked=False)


def by_a_missing_object(repository: Path, trap: Trap) -> None:
    """The blob of a file is gone, and the remote that is asked for it is a program."""
    blob = plain(repository, "rev-parse", "HEAD:a.txt").strip()
    (repository / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    for name, value in (
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.url", f"ext::{trap.path}"),
        ("protocol.ext.allow", "always"),
    ):
        plain(repository, "config", name, value)


def by_a_setting(name: str, **more: str) -> Callable[[Path, Trap], None]:
    def plant(repository: Path, trap: Trap) -> None:
        plain(repository, "config", name, str(trap.path))
        for other, value in more.items():
            plain(repository, "config", other.replace("__", "."), value)
        (repository / ".gitattributes").write_text("*.txt diff=x\n")

    return plant


def by_a_hook(name: str) -> Callable[[Path, Trap], None]:
    def plant(repository: Path, trap: Trap) -> None:
        (repository / ".git" / "hooks").mkdir()
        (repository / ".git" / "hooks" / name).symlink_to(trap.path)

    return plant


@pytest.mark.parametrize(
    "plant",
    [
        lambda r, t: planted_filter(r, t, b"x"),
        lambda r, t: planted_filter(r, t, b"a=b"),
        lambda r, t: planted_filter(r, t, b"A.b.c"),
        lambda r, t: planted_filter(r, t, b"\xff\xfe"),
        in_the_worktree_file,
        in_a_submodule,
        by_a_missing_object,
        by_a_setting("core.fsmonitor"),
        by_a_setting("diff.external"),
        by_a_setting("diff.x.command"),
        by_a_setting("diff.x.textconv"),
        by_a_setting("gpg.program", commit__gpgSign="true"),
        by_a_hook("pre-commit"),
        by_a_hook("prepare-commit-msg"),
        by_a_hook("commit-msg"),
        by_a_hook("post-commit"),
        by_a_hook("post-index-change"),
        by_a_hook("reference-transaction"),
    ],
    ids=[
        "filter", "filter-with-an-equals-sign", "filter-with-dots", "filter-that-is-not-utf-8",
        "worktree-config", "submodule", "missing-object", "fsmonitor", "external-diff", "diff-driver",
        "textconv", "signing", "pre-commit", "prepare-commit-msg", "commit-msg", "post-commit",
        "post-index-change", "reference-transaction",
    ],
)  # fmt: skip
def test_what_plain_git_starts_is_not_started(
    repository: Path, trap: Trap, plant: Callable[[Path, Trap], None]
) -> None:
    plant(repository, trap)
    (repository / "a.txt").write_text("changed\n")
    trap.sprung()
    use_every_tool(repository)
    assert trap.sprung() == ""
    (repository / "a.txt").write_text("changed again\n")
    for command in (["status"], ["diff"], ["add", "a.txt"], ["commit", "-m", "x"], ["log", "-p"]):
        plain(repository, *command, is_checked=False)
    assert trap.sprung() != "", "the attack must work without the guard"


def test_what_the_caller_has_in_its_environment_does_not_count(
    repository: Path, trap: Trap, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GIT_EXTERNAL_DIFF", "GIT_PAGER", "GIT_EDITOR", "GIT_ASKPASS", "GIT_SSH_COMMAND", "PAGER"):
        monkeypatch.setenv(name, str(trap.path))
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", f"'core.fsmonitor={trap.path}'")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    (repository / "a.txt").write_text("changed\n")
    use_every_tool(repository)
    assert trap.sprung() == ""
    assert git_status(pair(repository)).startswith("## main\n")


def test_a_configuration_that_is_too_long_to_be_looked_through_is_refused(repository: Path) -> None:
    with (repository / ".git" / "config").open("a") as file:
        file.writelines(f'[filter "{"x" * 90}{n}"]\n\tclean = true\n' for n in range(400))
    said = "the configuration of 'repository' cannot be looked through"
    assert refusal(lambda: git_status(pair(repository))) == said
