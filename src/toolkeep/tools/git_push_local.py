"""Push a branch to a bare repository on this machine, without the programs that git would start for it.

For a local push git starts a receiver through a shell, which runs the hooks of the other repository. Here git
only packs and unpacks objects and moves the branch; a repository with hooks that decide about a push is
refused rather than bypassed.
"""

import os
import subprocess
import tempfile
from typing import Final

from toolkeep.definitions.tool_context import ToolFailed
from toolkeep.tools.catalog import GIT
from toolkeep.tools.git_borrowed_objects import SECONDS, ObjectAlternates, environment
from toolkeep.tools.tool_path import ToolPath

_HOOKS: Final = (
    *("pre-receive", "update", "proc-receive", "reference-transaction"),
    *("post-receive", "post-update"),
)
"""Hooks that decide about a push, and those that react to one."""

_BEHIND: Final = "the branch there has commits that this one does not have; fetch and merge them first"


def push_to_folder(lender: ObjectAlternates, folder: ToolPath, tip: str, target: str) -> str:
    """Push a commit to a branch and report the result; `ToolFailed` says why it failed."""
    there = folder.real
    _check(lender, folder)
    lender.borrow(f"{there}/objects")
    before = _ref(lender, there, target)
    if before == tip:
        return f"'{target}' of '{folder.named}' is at {tip[:12]} already; nothing was pushed"
    if before and lender.run("merge-base", "--is-ancestor", before, tip).status != 0:
        raise ToolFailed(f"'{target}' was not pushed to '{folder.named}': {_BEHIND}, nothing is forced")
    _send_objects(lender, there, tip)
    moving = "-m", "push", f"refs/heads/{target}", tip, before or "0" * len(tip)
    if lender.run("update-ref", *moving, git_dir=there).status != 0:
        why = "the branch has moved, or another branch uses its name as a folder; fetch and try again"
        raise ToolFailed(f"'{target}' was not pushed to '{folder.named}': {why}")
    what = f"'{target}'" if before else f"the new branch '{target}'"
    return f"Pushed {tip[:12]} to {what} of '{folder.named}'"


def _check(lender: ObjectAlternates, folder: ToolPath) -> None:
    """Raise `ToolFailed` if a branch cannot or must not be pushed to."""
    there = folder.real
    if lender.run("rev-parse", "--is-bare-repository", git_dir=there).text().strip() != "true":
        raise ToolFailed(f"'{folder.named}' is not a bare repository; make one with git init --bare")
    if hooks := _hooks(lender, there):
        why = "which decide about pushes or act on them, and hooks do not run here"
        raise ToolFailed(f"'{folder.named}' has hooks ({', '.join(hooks)}), {why}: push by hand")
    forms = {lender.said("rev-parse", "--show-object-format", git_dir=here) for here in ("", there)}
    if len(forms) > 1:
        raise ToolFailed(f"'{folder.named}' names its objects in another form than this repository")


def _hooks(lender: ObjectAlternates, there: str) -> list[str]:
    listed = lender.said("config", "--local", "--includes", "--name-only", "--list", git_dir=there)
    moved = [name for name in listed.split() if name.lower() == "core.hookspath"]
    return [*moved[:1], *(name for name in _HOOKS if os.path.lexists(f"{there}/hooks/{name}"))]


def _ref(lender: ObjectAlternates, there: str, branch: str) -> str:
    found = lender.run("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}", git_dir=there)
    return found.text().strip() if found.status == 0 else ""


def _send_objects(lender: ObjectAlternates, there: str, tip: str) -> None:
    """Pack the missing objects and unpack them there; both ends are git, with nothing in between."""
    known = lender.said("for-each-ref", "--format=%(objectname)", git_dir=there).split()
    wanted = "\n".join([tip, *(f"^{name}" for name in dict.fromkeys(known))]) + "\n"
    packing = [GIT, f"--git-dir={lender.git_dir}", "pack-objects", "--revs", "--stdout", "-q"]
    taking = [GIT, f"--git-dir={there}", "index-pack", "--stdin", "--strict", "--fix-thin"]
    quiet = {"env": environment(), "stderr": subprocess.DEVNULL}
    with tempfile.TemporaryFile() as revisions:
        revisions.write(wanted.encode())
        revisions.seek(0)
        with subprocess.Popen(packing, stdin=revisions, stdout=subprocess.PIPE, **quiet) as pack:  # type: ignore[call-overload]  # noqa: S603 -- git, with words of ours
            taken = subprocess.run(  # type: ignore[call-overload]  # noqa: S603 -- git, with words of ours
                taking, stdin=pack.stdout, stdout=subprocess.DEVNULL, timeout=SECONDS, check=False, **quiet
            )
    if pack.returncode or taken.returncode:
        raise ToolFailed("The objects of the branch could not be copied: some are missing or broken")
