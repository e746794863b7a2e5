"""Pushes a branch to a bare repository on this machine, without what git would start for it.

For a local push git asks a shell to start a receiver, which runs the hooks of the other side. Here objects
are packed, unpacked and the branch is moved, by git and nothing else; a repository whose hooks have a say in
that is left alone.
"""

import os
import subprocess
import tempfile
from typing import Final

from toolkeep.definitions.context import ToolFailed
from toolkeep.tools.borrowing import SECONDS, Lender, environment
from toolkeep.tools.catalogue import GIT
from toolkeep.tools.place import Place

_HOOKS: Final = (
    *("pre-receive", "update", "proc-receive", "reference-transaction"),
    *("post-receive", "post-update"),
)
"""Those that decide about a push, and those that act on one."""

_BEHIND: Final = "the branch there has commits that this one does not have; fetch and merge them first"


def push_to_folder(lender: Lender, folder: Place, tip: str, target: str) -> str:
    """What came of pushing a commit to a branch; `ToolFailed` says why nothing did."""
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
        why = "the branch there moved meanwhile, or another one has its name as a folder; look and try again"
        raise ToolFailed(f"'{target}' was not pushed to '{folder.named}': {why}")
    what = f"'{target}'" if before else f"the new branch '{target}'"
    return f"Pushed {tip[:12]} to {what} of '{folder.named}'"


def _check(lender: Lender, folder: Place) -> None:
    """Raise `ToolFailed` where a branch cannot be pushed to, or should not be by us."""
    there = folder.real
    if lender.run("rev-parse", "--is-bare-repository", git_dir=there).text().strip() != "true":
        raise ToolFailed(f"'{folder.named}' is not a bare repository; make one with git init --bare")
    if hooks := _hooks(lender, there):
        why = "which decide about pushes or act on them, and hooks do not run here"
        raise ToolFailed(f"'{folder.named}' has hooks ({', '.join(hooks)}), {why}: push by hand")
    forms = {lender.said("rev-parse", "--show-object-format", git_dir=here) for here in ("", there)}
    if len(forms) > 1:
        raise ToolFailed(f"'{folder.named}' names its objects in another form than this repository")


def _hooks(lender: Lender, there: str) -> list[str]:
    listed = lender.said("config", "--local", "--includes", "--name-only", "--list", git_dir=there)
    moved = [name for name in listed.split() if name.lower() == "core.hookspath"]
    return [*moved[:1], *(name for name in _HOOKS if os.path.lexists(f"{there}/hooks/{name}"))]


def _ref(lender: Lender, there: str, branch: str) -> str:
    found = lender.run("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}", git_dir=there)
    return found.text().strip() if found.status == 0 else ""


def _send_objects(lender: Lender, there: str, tip: str) -> None:
    """Pack what is not there yet, and unpack it there; both are git, and nothing lies between them."""
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
