"""Whose word a token is, where somebody approves without a terminal (POL-4)."""

import contextlib
import os
import shlex
import stat
from pathlib import Path

from toolkeep.assembly import open_tokens, project_folder
from toolkeep.cli.approve.queue import NotAnswered
from toolkeep.errors import FileUnreadable
from toolkeep.limits import TOKEN_CHARS
from toolkeep.tokens import Scope


def approver_of(token_file: Path, project: Path | None) -> str:
    """The agent of the token in a file; raises where the token may not approve, or others may know it."""
    try:
        with token_file.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(TOKEN_CHARS + 2).decode("ascii", "replace").strip()
    except OSError as error:
        raise FileUnreadable(str(token_file), error.strerror or "cannot be read") from error
    if stat.S_ISREG(mode) and stat.S_IMODE(mode) & 0o077:
        hint = f"run: chmod 600 {shlex.quote(str(token_file))}"
        raise NotAnswered("the file with the token is open to other users", hint=hint)
    with contextlib.closing(open_tokens(project_folder(project))) as tokens:
        token = tokens.recognize(text)
    if token is None:
        hint = "make one: toolkeep token make NAME --scope approve"
        raise NotAnswered("the token in the file does not count", hint=hint)
    if not token.has_scope(Scope.APPROVE):
        hint = f"toolkeep token make {token.name} --scope approve"
        raise NotAnswered("the token in the file may not approve", hint=hint)
    return token.agent
