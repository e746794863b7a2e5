"""The git tools: status, diff, log and commit of a repository, without running its programs (TLS-3).

A repository can name programs in its hooks and configuration: file system monitor, filters, external diffs,
editors, signers, transports. A cloned repository could so run code at the first `git status`. Settings with
fixed names are overridden here; those with names of their own are looked up and overridden; and the sandbox
lets only git itself be started.
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Final

from toolkeep.definitions.tool_context import ToolFailed
from toolkeep.tools.catalog import GIT
from toolkeep.tools.run_command import Run, run_program
from toolkeep.tools.tool_path import ToolPath

_SECONDS: Final = 50.0
"""Below the tool's own deadline of 60 s, so that the message is about git and not about the worker."""
ENVIRONMENT: Final = {
    "PATH": "/usr/bin:/bin",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_ALLOW_PROTOCOL": "none",
}
"""The whole environment of git.

In the C locale any byte is a character, so that no name escapes a pattern by being invalid text. No transport
is allowed: git would fetch a missing object by one.
"""

SETTINGS: Final = {
    "core.fsmonitor": "false", "core.hooksPath": "/dev/null", "core.pager": "cat", "core.editor": "false",
    "core.askPass": "false", "core.sshCommand": "false", "core.gitProxy": "false", "core.quotePath": "false",
    "core.alternateRefsCommand": "", "credential.helper": "", "diff.external": "", "sequence.editor": "false",
    "commit.gpgSign": "false", "tag.gpgSign": "false", "push.gpgSign": "false", "log.showSignature": "false",
    "gpg.program": "false", "gpg.openpgp.program": "false", "gpg.ssh.program": "false",
    "gpg.x509.program": "false", "gpg.ssh.defaultKeyCommand": "", "gc.recentObjectsHook": "",
    "pager.status": "false", "pager.diff": "false", "pager.log": "false", "submodule.recurse": "false",
    "status.submoduleSummary": "false", "diff.ignoreSubmodules": "all", "diff.submodule": "short",
    "diff.autoRefreshIndex": "false", "gc.auto": "0", "maintenance.auto": "false", "safe.directory": "*",
    "commit.template": "", "uploadpack.packObjectsHook": "", "user.useConfigOnly": "true",
}  # fmt: skip
"""The settings with fixed names by which git would start a program."""

_NAMED: Final = (
    r"^(filter\..+\.(clean|smudge|process|required)|diff\..+\.(command|textconv)|merge\..+\.driver"
    r"|remote\..+\.(uploadpack|receivepack|vcs|proxy)|credential\..+\.helper|trailer\..+\.(command|cmd)"
    r"|submodule\..+\.update|hook\..+\.command|tar\..+\.command|(diff|merge)tool\..+\.(cmd|path))$"
)
"""Settings that start a program and whose names the repository chooses."""

_NO_SUBMODULES: Final = "--ignore-submodules=all"
"""In each submodule git would start another git without these settings; a repository cannot override this
flag."""

_STATUS: Final = ("status", "--short", "--branch", "--untracked-files=normal", _NO_SUBMODULES)
_DIFF: Final = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short", _NO_SUBMODULES)
_REVISION: Final = re.compile(r"(?![-/.])[A-Za-z0-9_./@{}^~:+-]{1,200}")


def git_status(path: Sequence[str]) -> str:
    """The branch, and the differences from the last commit."""
    said = Repository(path).said(*_STATUS)
    return said if said.count("\n") > 1 else f"{said.rstrip()}\n[nothing has changed]"


def git_diff(
    path: Sequence[str], revision: str | None = None, file: str | None = None, *, staged: bool = False
) -> str:
    """The changes as a unified diff."""
    chosen = ["--cached"] if staged else []
    chosen += ["--end-of-options", _checked(revision)] if revision else []
    # always with a path: without one, git compares arbitrary files outside the repository
    chosen += ["--", file or "."]
    said = Repository(path).said(*_DIFF, *chosen)
    return said or "[no differences]"


def git_log(
    path: Sequence[str], max_count: int = 20, revision: str | None = None, file: str | None = None
) -> str:
    """The commits, newest first, one line each."""
    shape = f"--max-count={max_count}", "--date=iso-strict", "--format=%h %ad %an: %s"
    chosen = ["--end-of-options", _checked(revision)] if revision else []
    # always with a path: without one, git compares arbitrary files outside the repository
    chosen += ["--", file or "."]
    return Repository(path).said("log", "--no-color", "--no-show-signature", *shape, *chosen)


def git_commit(path: Sequence[str], message: str, files: Sequence[str] | None = None) -> str:
    """Commit these files, or the staged changes."""
    repository = Repository(path)
    if not message.strip():
        raise ToolFailed("The message of a commit must not be blank")
    if files:
        if filtered := repository.first_filtered(files):
            why = "goes through a filter of the repository (such as LFS), and filters are off here"
            raise ToolFailed(f"'{filtered}' {why}: commit it by hand")
        repository.said("add", "--", *files)
    if repository.run(*_DIFF, "--cached", "--quiet").status == 0 and not repository.is_merging():
        raise ToolFailed("Nothing is staged, so there is nothing to commit; name the files to commit")
    done = repository.run("commit", "--no-verify", "--no-gpg-sign", "--cleanup=verbatim", "-m", message)
    if done.status and "auto-detection is disabled" in done.text():
        hint = "set user.name and user.email in the repository's configuration"
        raise ToolFailed(f"git does not know who commits: {hint}")
    return repository.good(done, "commit")


class Repository:
    """A repository, by its top folder."""

    @property
    def named(self) -> str:
        """As the caller named it."""
        return self._place.named

    def __init__(self, path: Sequence[str]) -> None:
        self._place = ToolPath(*path)
        self._off = as_environment(SETTINGS)
        if self.run("rev-parse", "--git-dir").status != 0:
            raise ToolFailed(f"'{self._place.named}' is not the top folder of a git repository")
        self._off = as_environment({**SETTINGS, **self._named_settings()})

    def said(self, command: str, *arguments: str) -> str:
        """The output of git; `ToolFailed` with its message if it fails."""
        return self.good(self.run(command, *arguments), command)

    def run(self, command: str, *arguments: str, capture_stderr: bool = True) -> Run:
        """Run one git command here."""
        here = f"--git-dir={self._place.real}/.git", f"--work-tree={self._place.real}"
        return run_program(
            ["git", "--no-pager", *here, command, *arguments],
            program=GIT,
            name="git",
            folder=self._place,
            seconds=_SECONDS,
            capture_stderr=capture_stderr,
            environment={**ENVIRONMENT, **self._off},
        )

    def first_filtered(self, files: Sequence[str]) -> str:
        """The first of these files, or in these folders, that a filter would change on commit; empty if
        none."""
        names = self._listed("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *files)
        told = self._listed("check-attr", "-z", "filter", "--", *names) if names else []
        for name, value in zip(told[::3], told[2::3], strict=True):
            if value not in ("unspecified", "unset"):
                return name
        return ""

    def _listed(self, command: str, *arguments: str) -> list[str]:
        listed = self.run(command, *arguments, capture_stderr=False)
        if listed.status != 0 or listed.left_out:
            raise ToolFailed("These are too many files at once; name fewer")
        return os.fsdecode(listed.head + listed.tail).split("\0")[:-1]

    def is_merging(self) -> bool:
        """Whether a commit would conclude a merge, which may change nothing."""
        return self.run("rev-parse", "--verify", "--quiet", "MERGE_HEAD").status == 0

    def good(self, run: Run, command: str) -> str:
        """The output of git, if it succeeded."""
        said = run.text()
        if run.status != 0:
            told = _as_named(said.strip(), self._place)
            raise ToolFailed(f"git {command} did not work ({run.ending}):\n{told[-1500:]}")
        return said

    def _named_settings(self) -> dict[str, str]:
        """The settings with names that the repository chose, each with an empty value.

        Read byte by byte, with no other output of git in between: a name that was misread would stay in
        force, and its program would run.
        """
        asked = "config", "--includes", "--name-only", "--null", "--get-regexp", _NAMED
        listed = self.run(*asked, capture_stderr=False)
        if listed.status not in (0, 1) or listed.left_out:
            raise ToolFailed(f"the configuration of '{self._place.named}' cannot be looked through")
        names = os.fsdecode(listed.head + listed.tail).split("\0")
        return {name: "false" if name.endswith(".required") else "" for name in names if name}


def _as_named(said: str, place: ToolPath) -> str:
    """The output of git with the repository as the caller named it; `/a/repo2` and `/b/a/repo` are others."""
    whole = rf"(?<![\w.-]){re.escape(place.real)}(?![\w-]|\.\w)"
    return re.sub(whole, lambda _: place.named, said)


def as_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings that override the repository's, in a form in which a name may hold any character."""
    counted = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (name, value) in enumerate(settings.items()):
        counted[f"GIT_CONFIG_KEY_{number}"] = name
        counted[f"GIT_CONFIG_VALUE_{number}"] = value
    return counted


def _checked(revision: str) -> str:
    if not _REVISION.fullmatch(revision):
        raise ToolFailed(f"'{revision}' is not a revision: give a branch, a tag, a hash or a range of them")
    return revision
