"""The git tools: status, diff, log and commit of a repository whose own programs stay off (TLS-3).

A repository can name programs in its hooks and in its configuration: a file system monitor, filters, external
diffs, editors, signers, transports. Those that git knows by a fixed name are switched off here; those with a
name of their own are looked up and switched off; and the sandbox lets nothing be started but git itself.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from toolkeep.definitions.context import ToolFailed
from toolkeep.tools.catalogue import GIT
from toolkeep.tools.place import Place
from toolkeep.tools.running import Run, run_program

_SECONDS: Final = 50.0
_ENVIRONMENT: Final = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_PROTOCOL_FROM_USER": "0",
    "GIT_ALLOW_PROTOCOL": "https:file",
    "LC_ALL": "C.UTF-8",
}
_OFF: Final = (
    "core.fsmonitor=false", "core.hooksPath=/dev/null", "core.pager=cat", "core.editor=false",
    "core.askPass=false", "core.sshCommand=false", "core.gitProxy=false", "core.alternateRefsCommand=",
    "credential.helper=", "diff.external=", "sequence.editor=false", "commit.gpgSign=false",
    "tag.gpgSign=false", "push.gpgSign=false", "log.showSignature=false", "gpg.program=false",
    "gpg.ssh.program=false", "gpg.x509.program=false", "gpg.ssh.defaultKeyCommand=", "pager.status=false",
    "pager.diff=false", "pager.log=false", "submodule.recurse=false", "status.submoduleSummary=false",
    "diff.ignoreSubmodules=all", "gc.auto=0", "maintenance.auto=false", "safe.directory=*",
    "commit.template=", "uploadpack.packObjectsHook=",
)  # fmt: skip
"""What git would start something for, by names that are the same in every repository."""

_NAMED: Final = re.compile(
    r"(?is)(?:filter\..+\.(?:clean|smudge|process|required)|diff\..+\.(?:command|textconv)|merge\..+\.driver"
    r"|remote\..+\.(?:uploadpack|receivepack|vcs|proxy)|credential\..+\.helper|trailer\..+\.(?:command|cmd))"
)
"""What a repository can name itself."""

_REVISION: Final = re.compile(r"(?!-)[A-Za-z0-9_./@{}^~:+-]{1,200}")


def git_status(path: Sequence[str]) -> str:
    """The branch, and what differs from the last commit."""
    said = _Repository(path).said("status", "--short", "--branch", "--untracked-files=normal")
    return said if said.count("\n") > 1 else f"{said.rstrip()}\n[nothing has changed]"


def git_diff(
    path: Sequence[str], revision: str | None = None, file: str | None = None, *, staged: bool = False
) -> str:
    """What changed, as a unified diff."""
    chosen = ["--cached"] if staged else []
    chosen += ["--end-of-options", _checked(revision)] if revision else []
    chosen += ["--", file] if file else ["--"]
    said = _Repository(path).said("diff", "--no-ext-diff", "--no-textconv", "--no-color", *chosen)
    return said or "[no differences]"


def git_log(
    path: Sequence[str], max_count: int = 20, revision: str | None = None, file: str | None = None
) -> str:
    """The commits, newest first, a line each."""
    shape = f"--max-count={max_count}", "--date=iso-strict", "--format=%h %ad %an: %s"
    chosen = ["--end-of-options", _checked(revision)] if revision else []
    chosen += ["--", file] if file else ["--"]
    return _Repository(path).said("log", "--no-color", "--no-show-signature", *shape, *chosen)


def git_commit(path: Sequence[str], message: str, files: Sequence[str] | None = None) -> str:
    """Commit these files, or what is staged."""
    repository = _Repository(path)
    if not message.strip():
        raise ToolFailed("The message of a commit must not be blank")
    if files:
        repository.said("add", "--", *files)
    done = repository.run("commit", "--no-verify", "--no-gpg-sign", "--cleanup=verbatim", "-m", message)
    said = done.text().strip()
    if done.status and "Please tell me who you are" in said:
        hint = "set user.name and user.email in the repository's configuration"
        raise ToolFailed(f"git does not know who commits: {hint}")
    return _good(done, "commit")


class _Repository:
    """A repository, by its top folder."""

    def __init__(self, path: Sequence[str]) -> None:
        self._place = Place(*path)
        self._off = [*_OFF, *self._switched_off()]

    def said(self, command: str, *arguments: str) -> str:
        """What git wrote; `ToolFailed` with its words where it did not work."""
        return _good(self.run(command, *arguments), command)

    def run(self, command: str, *arguments: str) -> Run:
        """Run one git command here."""
        off = [part for setting in self._off for part in ("-c", setting)]
        return self._git(*off, command, *arguments)

    def _git(self, *arguments: str) -> Run:
        here = f"--git-dir={self._place.real}/.git", f"--work-tree={self._place.real}"
        argv = [GIT, "--no-pager", *here, *arguments]
        return run_program(
            argv, name="git", folder=self._place, seconds=_SECONDS, environment=dict(_ENVIRONMENT)
        )

    def _switched_off(self) -> Iterator[str]:
        """The settings with names of their own, each without a value."""
        listed = self._git("config", "--local", "--includes", "--name-only", "--null", "--list")
        if listed.status != 0:
            raise ToolFailed(f"'{self._place.named}' is not the top folder of a git repository")
        if listed.left_out:
            raise ToolFailed(f"the configuration of '{self._place.named}' is too long to be looked through")
        for name in set(listed.text().split("\0")):
            if _NAMED.fullmatch(name):
                yield f"{name}=false" if name.lower().endswith(".required") else f"{name}="


def _checked(revision: str) -> str:
    if not _REVISION.fullmatch(revision):
        raise ToolFailed(f"'{revision}' is no revision: write a branch, a tag, a hash or a range of them")
    return revision


def _good(run: Run, command: str) -> str:
    said = run.text()
    if run.status != 0:
        raise ToolFailed(f"git {command} did not work ({run.ending}):\n{said.strip()[-1500:]}")
    return said
