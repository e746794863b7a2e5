"""Takes back what built-in tools wrote to files (TLS-4).

Before such a tool runs, the file that it names is read through its checked descriptor and kept in the state
folder. Taking it back is a call of `restore_file`, which is validated, permitted, approved and recorded as
any other, and which can itself be taken back.
"""

import base64
import hashlib
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from toolkeep.approval.file_diff import text_difference
from toolkeep.calls import RecordedCall, ToolResult
from toolkeep.definitions.tool_context import ToolFailed
from toolkeep.errors import NotRecorded, ToolkeepError
from toolkeep.limits import UNDO_FILE_BYTES
from toolkeep.stores.replaced_files import Replaced, ReplacedFiles
from toolkeep.tools.tool_path import ToolPath

log = logging.getLogger("toolkeep.undo")

RESTORE: Final = "restore_file"


class Caller(Protocol):
    """What an undo needs of a keep."""

    async def call(self, name: str, arguments: dict[str, Any], *, agent: str) -> ToolResult:
        """Call a tool."""


def keep_replaced(replaced: ReplacedFiles, call: RecordedCall) -> Callable[[], None]:
    """Keep what a call is about to replace, in a thread; what to do once it ran.

    Raises `OSError` or `ToolkeepError`: a write that could not be taken back is not begun.
    """
    request = call.request
    written = next(one for one in call.approved.permitted.touched if one.kind == "fs.write")
    replaced.put(
        Replaced(
            call=request.id,
            tool=call.tool.name,
            agent=request.agent,
            session=request.session,
            conversation=request.conversation,
            path=written.shown,
            at=time.time(),
            was_there=not written.is_missing,
            before=written.content(UNDO_FILE_BYTES),
        )
    )
    return partial(_note_after, replaced, request.id, written.shown)


def _note_after(replaced: ReplacedFiles, call: str, path: str) -> None:
    """Note the hash of what the call left; what it did cannot be taken back without it."""
    try:
        replaced.note_after(call, _sha256(path))
    except (OSError, ToolkeepError, ToolFailed) as error:
        log.warning("a call cannot be taken back", extra={"call": call, "error": type(error).__name__})


def _sha256(path: str) -> str:
    with ToolPath(path, path).open() as file:  # no link, pipe or device that was put there since
        known = hashlib.sha256()
        while piece := file.read(1 << 20):
            known.update(piece)
        return known.hexdigest()


def obstacle(found: Replaced | None) -> str:
    """Why a call cannot be taken back; empty if it can."""
    if found is None:
        return "what it replaced is not kept: it wrote no file with a built-in tool, or that was too long ago"
    if found.undone_by:
        return f"it was taken back by call {found.undone_by}"
    if found.before is None:
        return f"the file was larger than {UNDO_FILE_BYTES} bytes, so what it replaced is not kept"
    if not found.after_sha256:
        return "it is not known what it left: it failed, or toolkeep was stopped meanwhile"
    return ""


def difference(found: Replaced) -> str:
    """What taking it back would change, as a unified diff."""
    try:
        with ToolPath(found.path, found.path).open() as file:
            now = file.read(UNDO_FILE_BYTES + 1)
    except (OSError, ToolFailed) as error:
        return str(error)
    if not found.was_there:
        return f"{found.path} would be removed: the call made it"
    return text_difference(found.path, now, found.before or b"")


async def undo(keep: Caller, replaced: ReplacedFiles, call_id: str, *, agent: str) -> ToolResult:
    """Take back one call; raises `NotRecorded` with the reason if that is not possible."""
    found = replaced.of_call(call_id)
    if (why := obstacle(found)) or found is None:
        raise NotRecorded(f"call {call_id[:64]!r} cannot be taken back: {why}")
    arguments: dict[str, Any] = {"path": found.path, "expected_sha256": found.after_sha256}
    if found.was_there:
        arguments |= _content(found.before or b"")
    result = await keep.call(RESTORE, arguments, agent=agent)
    if result.ok:
        replaced.note_undone(call_id, result.call_id)
    return result


def _content(before: bytes) -> dict[str, str]:
    try:
        return {"content": before.decode()}
    except UnicodeDecodeError:
        return {"content_base64": base64.b64encode(before).decode()}
