"""A refused call, explained: the slow half of the door.

Faults are found; words, signature and repair are made when they are read. The refusal gets a correlation id,
is compared with earlier ones, and is told to whoever listens, with redacted arguments (VAL-6).
"""

import json
import math
from collections.abc import Sequence
from functools import partial

from toolkeep.calls import Advice, Refusal, RegisteredTool, Repair, Violation
from toolkeep.errors import Code
from toolkeep.events import ValidationFailed
from toolkeep.limits import DEFERRED_BYTES, LOGGED_CHARS, QUIET_SECONDS, REPORT_DIGITS
from toolkeep.random_ids import random_digits
from toolkeep.validation.faults import Fault, find_faults, first_fault
from toolkeep.validation.memory import Caller, RefusalMemory
from toolkeep.validation.mishap import log_mishap
from toolkeep.validation.parse import Misfit, Objection, as_bytes, may_hold_long_numbers, parse_json
from toolkeep.validation.reasons import NotStrictJson, infinite_number, too_many_digits
from toolkeep.validation.repair import repair_of
from toolkeep.validation.report import violations_of
from toolkeep.validation.size import size_of
from toolkeep.wording import shorten, visible

_ID_DIGITS = 16
_PATH_CHARS = 200
_REPARSED_BYTES = 200_000
"""A larger call that is refused anyway is not read again to find out whether a key stands twice too."""


def explain(
    tool: RegisteredTool, arguments: object, objection: Objection, memory: RefusalMemory, caller: Caller
) -> Refusal:
    """The whole refusal of one call; a bare one if something goes wrong on the way, never an exception."""
    try:
        return _explain(tool, arguments, objection, memory, caller)
    except Exception as error:  # noqa: BLE001 -- a call that is refused stays refused
        log_mishap("a refusal could not be explained", error, tool=tool.name)
        return Refusal(
            tool=tool.name,
            errors=(_unexplained(),),
            advice=Advice(partial(tool.arguments.hint, tool.name)),
            correlation_id=caller.correlation_id or random_digits()[:_ID_DIGITS],
        )


def _unexplained() -> Violation:
    return _whole(NotStrictJson("the arguments do not fit", "follow the signature", code=Code.CHECK_FAILED))


def _explain(
    tool: RegisteredTool, arguments: object, objection: Objection, memory: RefusalMemory, caller: Caller
) -> Refusal:
    text = as_bytes(arguments)
    objection = _sharper(tool, text, objection)
    identity = text or _identity(objection)
    is_repeated, is_brief = memory.note(caller, tool.name, identity)
    errors, faults = _found(tool, objection, len(text) or math.inf, is_brief=is_brief)
    refusal = Refusal(
        tool=tool.name,
        errors=errors,
        advice=Advice(partial(tool.arguments.hint, tool.name), partial(_repair, tool, objection, faults)),
        correlation_id=caller.correlation_id or random_digits()[:_ID_DIGITS],
        is_repeated=is_repeated,
    )
    if len(identity) * tool.arguments.cost.errors > DEFERRED_BYTES:
        refusal.settle()
    _tell(tool, objection, refusal, memory, caller.agent)
    return refusal


def _found(
    tool: RegisteredTool, objection: Objection, weight: float, *, is_brief: bool
) -> tuple[tuple[Violation, ...], Sequence[Fault]]:
    """What is wrong, and the faults that a repair would have to mend."""
    schema = tool.arguments
    if isinstance(objection, NotStrictJson):
        error = _whole(_without_names(objection) if schema.secrecy.has_secrets else objection)
        return ((_withheld(), error) if is_brief else (error,)), ()
    value = objection.value
    if is_brief:
        return (_withheld(), *violations_of(schema, value, first_fault(schema, value))[:1]), ()
    faults = find_faults(schema, value, limit=schema.limits.errors, weight=weight)
    return violations_of(schema, value, faults), faults


def _repair(tool: RegisteredTool, objection: Objection, faults: Sequence[Fault]) -> Repair | None:
    if not isinstance(objection, Misfit):
        return None
    try:
        return repair_of(tool.arguments, objection.value, faults)
    except Exception as error:  # noqa: BLE001 -- nobody trips over a refusal by reading it
        log_mishap("a repair could not be tried", error, tool=tool.name)
        return None


def _sharper(tool: RegisteredTool, text: bytes, objection: Objection) -> Objection:
    """A misfit that is no strict JSON to begin with, or that holds numbers too long to speak about."""
    if not isinstance(objection, Misfit):
        return objection
    if not text or may_hold_long_numbers(text):
        size = objection.size or size_of(objection.value)
        if not size.is_finite:
            return infinite_number()
        if size.wide_digits * tool.arguments.cost.errors > REPORT_DIGITS:
            return too_many_digits()
    if tool.arguments.members is None or not 0 < len(text) <= _REPARSED_BYTES:
        return objection
    value = objection.value
    if type(value) is dict and text.count(b"{") == 1 and text.count(b":") == len(value):
        return objection  # one object and no more colons than keys, as most: none stands twice
    try:
        parse_json(text)  # duplicate keys were left to a count that was not taken
    except NotStrictJson as reason:
        return reason
    return objection


def _identity(objection: Objection) -> bytes:
    """Of arguments that are no text: bytes that are the same for the same ones; hashed, never kept."""
    if isinstance(objection, Misfit):
        return repr(objection.value).encode("utf-8", "surrogatepass")
    return f"{objection.path}{objection.reason}".encode("utf-8", "surrogatepass")


def _without_names(reason: NotStrictJson) -> NotStrictJson:
    """The same without its place, whose names may be part of a secret: no schema was asked about them yet."""
    return NotStrictJson(reason.reason, reason.mend, code=reason.code)


def _whole(reason: NotStrictJson) -> Violation:
    """A refusal of the arguments as a whole."""
    message = reason.reason[:1].upper() + reason.reason[1:]
    suggestion = f"{reason.mend[:1].upper()}{reason.mend[1:]}."
    path = shorten(visible(reason.path), _PATH_CHARS)
    is_cut = reason.code is Code.CALL_UNFINISHED
    expected = "a call that was finished" if is_cut else "a JSON object"
    return Violation(path, reason.code, message, expected, None, suggestion)


def _withheld() -> Violation:
    return Violation(
        "",
        Code.REFUSED_REPEATEDLY,
        "Too many calls of this tool were refused in a row; only the first problem is named",
        "a call that follows the signature",
        None,
        f"Read the signature, or wait {QUIET_SECONDS:g} s.",
    )


def _tell(
    tool: RegisteredTool, objection: Objection, refusal: Refusal, memory: RefusalMemory, agent: str
) -> None:
    if memory.bus.listeners:
        shown = partial(_shown, tool, objection)
        memory.bus.tell(ValidationFailed(tool_name=tool.name, agent=agent, refusal=refusal, arguments=shown))


def _shown(tool: RegisteredTool, objection: Objection) -> str:
    """The arguments as a log may hold them."""
    if not isinstance(objection, Misfit):
        return "(not JSON)"
    return shorten(json.dumps(tool.arguments.secrecy.redact(objection.value)), LOGGED_CHARS)
