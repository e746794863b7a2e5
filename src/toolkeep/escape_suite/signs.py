"""Detects escapes: what the host observes after a run, and how the call ended.

It checks its own files, listeners and processes, and believes an attempt only where it cannot observe.
"""

import contextlib
import json
from collections.abc import Mapping
from typing import Any, Final

from toolkeep.errors import ToolkeepError
from toolkeep.escape_suite.baits import Stage
from toolkeep.json_values.jsonable import NotData, TooMuch, to_json_body
from toolkeep.sandbox.worker_exchange import Ending, Reply

MEANINGS: Final[Mapping[str, str]] = {
    "leaked": "a secret was read",
    "changed": "a file was changed",
    "connected": "a listener was reached",
    "hit": "another process was touched",
    "left": "a process was left",
    "trapped": "something odd was left in the granted folder",
    "imported": "the host would import what was left",
    "shown": "another tool would be shown what nobody granted",
    "done": "it was let through",
    "stalled": "the event loop of the host was held",
    "more": "it took more than its share",
}
"""Signs in words; signs missing here are words already."""


def seen(stage: Stage, arguments: dict[str, Any], said: str, gone_s: float) -> list[str]:
    """Every sign of an escape; processes get `gone_s` seconds to be gone."""
    wanted = [value for name, value in arguments.items() if name.startswith("more_")]
    value = _value(said)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    # The modification time is a secret too: it shows that metadata was read.
    secrets_out = (stage.secret, str(stage.written_at), stage.bait_folder.secret)
    signs = {
        "leaked": any(secret in said for secret in secrets_out),
        "changed": stage.fingerprint() != stage.before,
        "connected": stage.listeners.was_reached(),
        "hit": stage.is_victim_touched(),
        "left": bool({"mark", "early_mark"} & set(arguments)) and bool(stage.left_after(gone_s)),
        "trapped": bool(stage.traps()),
        "imported": stage.has_imported(),
        "shown": stage.is_shown(),
        "done": value == "done",
        "more": is_number and bool(wanted) and value >= wanted[0],
    }
    return [sign for sign, is_seen in signs.items() if is_seen]


def _value(said: str) -> Any:
    with contextlib.suppress(ValueError):
        return json.loads(said)
    return None


def words(reply: Reply | ToolkeepError) -> str:
    """Answer of a call as text."""
    if isinstance(reply, ToolkeepError):
        return reply.message
    value = reply.value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    try:
        return json.dumps(value) if reply.ending is Ending.OK else reply.text
    except RecursionError:
        return ""


def ending(reply: Reply | ToolkeepError) -> str:
    """How a call ended.

    `refused` if the stage after the sandbox would reject the value, `unstarted` if no worker was available.
    """
    if isinstance(reply, ToolkeepError):
        return "unstarted"
    if reply.ending is Ending.OK and not isinstance(reply.value, bytes):
        try:
            to_json_body(reply.value)
        except (NotData, TooMuch):
            return "refused"
    return reply.ending.value
