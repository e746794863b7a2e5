"""`git_push`: push a branch by https, or to a bare repository on this machine (TLS-3).

Nothing in the repository decides where the branch goes or how: see `git_borrowed_objects`. A branch is never
forced.
"""

import re
from collections.abc import Sequence
from typing import Final

from toolkeep.definitions.tool_context import ToolContext, ToolFailed
from toolkeep.text.display import shorten, visible_lines
from toolkeep.tools.git import Repository
from toolkeep.tools.git_borrowed_objects import borrowing
from toolkeep.tools.git_push_https import push_to_server
from toolkeep.tools.git_push_local import push_to_folder
from toolkeep.tools.tool_path import ToolPath

_BRANCH: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./@+#-]{0,199}")
_NO_BRANCH: Final = re.compile(r"\.\.|//|/\.|@\{|\.lock(/|$)|[/.]$")
_REMOTES: Final = 10


def git_push(
    path: Sequence[str],
    url: str | None = None,
    folder: Sequence[str] | None = None,
    branch: str | None = None,
    to_branch: str | None = None,
    *,
    context: ToolContext,
) -> str:
    """Push a branch and report the result."""
    repository = Repository(path)
    if (url is None) == (folder is None):
        raise ToolFailed(_where(repository))
    source = _checked(branch) if branch else _current(repository)
    target = _checked(to_branch) if to_branch else source
    tip = _tip(repository, source)
    with borrowing(repository) as lender:
        if url is not None:
            return push_to_server(lender, url, tip, target, context)
        return push_to_folder(lender, ToolPath(*(folder or ())), tip, target)


def _checked(branch: str) -> str:
    if not _BRANCH.fullmatch(branch) or _NO_BRANCH.search(branch):
        hint = "write it as git_status does, without refs/heads/"
        raise ToolFailed(f"'{branch}' is not a valid branch name; {hint}")
    return branch


def _current(repository: Repository) -> str:
    found = repository.run("symbolic-ref", "--quiet", "--short", "HEAD", capture_stderr=False)
    if found.status != 0:
        raise ToolFailed("The repository is on no branch; say which one to push")
    return _checked(found.text().strip())


def _tip(repository: Repository, branch: str) -> str:
    asked = f"refs/heads/{branch}^{{commit}}"
    found = repository.run("rev-parse", "--verify", "--quiet", asked, capture_stderr=False)
    if found.status != 0:
        raise ToolFailed(f"There is no branch '{branch}' with a commit in this repository")
    return found.text().strip()


def _where(repository: Repository) -> str:
    """The error for a call without a target."""
    listed = repository.run("config", "--get-regexp", r"^remote\..+\.(push)?url$", capture_stderr=False)
    remotes = [line for line in visible_lines(listed.text()).splitlines() if " " in line]
    said = "Say where to push: either url, an https address, or folder, a bare repository on this machine"
    if not remotes:
        return f"{said}. The repository names no remote"
    return f"{said}. The repository names: {'; '.join(map(_named, remotes[:_REMOTES]))}"


def _named(line: str) -> str:
    key, _, address = line.partition(" ")
    shown = re.sub(r"//[^/@]*@", "//", address)  # the user part of a URL may hold a password
    return shorten(f"{key.split('.', 1)[1].rpartition('.')[0]} {shown}", 200)
