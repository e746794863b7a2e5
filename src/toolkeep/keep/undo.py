"""Takes back what built-in tools wrote to files (TLS-4).

Before such a tool runs, the file that it names is read through its checked descriptor and kept in the state
folder. Taking it back is a call of `restore_file`, which is validated, permitted, approved and recorded as
any other, and which can itself be taken back.
"""

import base64
import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

import msgspec

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
        return "it wrote no file with a built-in tool on this server, or that is no longer kept"
    if found.undone_by:
        return f"it was taken back by call {found.undone_by}"
    if found.before is None:
        return f"the file was larger than {UNDO_FILE_BYTES} bytes, so what it replaced is not kept"
    if not found.after_sha256:
        return "it is not known what it left: it failed, or toolkeep was stopped meanwhile"
    return ""


class UndoStep(msgspec.Struct, frozen=True, kw_only=True):
    """What taking back one call would do."""

    replaced: Replaced
    obstacle: str
    """Why it cannot be taken back; empty if it can."""
    difference: str
    """What it would change, as a unified diff."""


def plan_undo(found: Sequence[Replaced]) -> list[UndoStep]:
    """What taking back calls one after the other, newest first, would do; nothing is changed.

    Each step finds what the steps before it leave. After one that cannot be taken back, none is: calls that
    were taken back already are passed over.
    """
    left: dict[str, bytes | None] = {}
    stop = ""
    steps = []
    for one in found:
        why = obstacle(one)
        if one.path in left:
            now, unreadable = left[one.path], ""
        else:
            now, unreadable = _now(one.path)
        why = why or unreadable
        if not why and not _is_left(one, now, is_planned=one.path in left):
            why = "the file has changed since"
        why = why or stop
        if not why:
            left[one.path] = one.before if one.was_there else None
        elif not one.undone_by:
            stop = "a newer call cannot be taken back"
        changes = "" if why else difference(one, now)
        steps.append(UndoStep(replaced=one, obstacle=why, difference=changes))
    return steps


def _now(path: str) -> tuple[bytes | None, str]:
    """The content of a file, its beginning of a large one; or why it cannot be read."""
    try:
        with ToolPath(path, path).open() as file:
            return file.read(UNDO_FILE_BYTES + 1), ""
    except (OSError, ToolFailed) as error:
        return None, str(error)


def _is_left(one: Replaced, now: bytes | None, *, is_planned: bool) -> bool:
    """Whether a file is as the call left it."""
    if now is None:
        return False
    if is_planned or len(now) <= UNDO_FILE_BYTES:
        return hashlib.sha256(now).hexdigest() == one.after_sha256
    try:
        return _sha256(one.path) == one.after_sha256
    except (OSError, ToolFailed):
        return False


def difference(found: Replaced, now: bytes | None) -> str:
    """What taking it back would change in a file that is so, as a unified diff."""
    if not found.was_there:
        return f"{found.path} would be removed: the call made it"
    return text_difference(found.path, now or b"", found.before or b"")


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
