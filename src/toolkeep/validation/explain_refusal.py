"""Explain a refused call: the slow path of validation.

Faults are located now; texts, signature and repair are made when they are read. The refusal gets a
correlation id, is compared with earlier refusals, and is published as an event with redacted arguments
(VAL-6).
"""

import json
import math
from collections.abc import Sequence
from functools import partial

from toolkeep.calls import Advice, Refusal, RegisteredTool, Repair, Violation
from toolkeep.errors import Code
from toolkeep.events import ValidationFailed
from toolkeep.host.random_ids import random_digits
from toolkeep.limits import DEFERRED_BYTES, LOGGED_CHARS, QUIET_SECONDS, REPORT_DIGITS
from toolkeep.text.display import shorten, visible
from toolkeep.validation.call_size import size_of
from toolkeep.validation.faults import Fault, find_faults, first_fault
from toolkeep.validation.parse import (
    NotStrictJson,
    Objection,
    SchemaMismatch,
    as_bytes,
    infinite_number,
    may_hold_long_numbers,
    parse_json,
    too_many_digits,
)
from toolkeep.validation.refusal_history import Caller, RefusalHistory
from toolkeep.validation.repair import repair_of
from toolkeep.validation.report import violations_of, without_echoes
from toolkeep.validation.secret_values import log_internal_error

_ID_DIGITS = 16
"""64 random bits, enough to find one call in a log."""
_PATH_CHARS = 200
"""A pointer holds property names that the caller chose, and goes to the model."""
_REPARSED_BYTES = 200_000
"""A larger refused call is not parsed again to find duplicate keys too: it is refused either way."""


def explain(
    tool: RegisteredTool, arguments: object, objection: Objection, memory: RefusalHistory, caller: Caller
) -> Refusal:
    """The whole refusal of one call.

    If explaining fails, a generic refusal: never an exception, never a pass.
    """
    try:
        return _explain(tool, arguments, objection, memory, caller)
    except Exception as error:  # noqa: BLE001 -- a bug in the report must not undo the refusal
        log_internal_error("a refusal could not be explained", error, tool=tool.name)
        return Refusal(
            tool=tool.name,
            errors=(_unexplained(),),
            advice=Advice(partial(tool.arguments.hint, tool.name)),
            correlation_id=caller.correlation_id or random_digits()[:_ID_DIGITS],
        )


def _unexplained() -> Violation:
    return _whole(NotStrictJson("the arguments do not match", "follow the signature", code=Code.CHECK_FAILED))


def _explain(
    tool: RegisteredTool, arguments: object, objection: Objection, memory: RefusalHistory, caller: Caller
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
        # Of arguments that could not be read nothing is known by which two calls could be told apart.
        is_repeated=is_repeated and bool(text or isinstance(objection, SchemaMismatch)),
    )
    if len(identity) * tool.arguments.cost.errors > DEFERRED_BYTES:
        refusal.settle()
    _tell(tool, objection, refusal, memory, caller.agent)
    return refusal


def _found(
    tool: RegisteredTool, objection: Objection, weight: float, *, is_brief: bool
) -> tuple[tuple[Violation, ...], Sequence[Fault]]:
    """The violations to report, and the faults that a repair would have to fix."""
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
    if not isinstance(objection, SchemaMismatch):
        return None
    try:
        return repair_of(tool.arguments, objection.value, tuple(without_echoes(faults)))
    except Exception as error:  # noqa: BLE001 -- reading a refusal never raises
        log_internal_error("a repair could not be tried", error, tool=tool.name)
        return None


def _sharper(tool: RegisteredTool, text: bytes, objection: Objection) -> Objection:
    """A more precise reason: the text is not strict JSON after all, or its numbers are too long to report."""
    if not isinstance(objection, SchemaMismatch):
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
        return objection  # the common case: one object, as many colons as keys, so no key occurs twice
    try:
        parse_json(text)  # duplicate keys are counted after validation, which failed here
    except NotStrictJson as reason:
        return reason
    return objection


def _identity(objection: Objection) -> bytes:
    """Bytes that identify arguments which are not text; hashed, never stored."""
    if isinstance(objection, SchemaMismatch):
        return repr(objection.value).encode("utf-8", "surrogatepass")
    return f"{objection.path}{objection.reason}".encode("utf-8", "surrogatepass")


def _without_names(reason: NotStrictJson) -> NotStrictJson:
    """The reason without its path: property names may be part of a secret, and no schema was applied yet."""
    return NotStrictJson(reason.reason, reason.fix, code=reason.code)


def _whole(reason: NotStrictJson) -> Violation:
    """A violation of the arguments as a whole."""
    message = reason.reason[:1].upper() + reason.reason[1:]
    suggestion = f"{reason.fix[:1].upper()}{reason.fix[1:]}."
    path = shorten(visible(reason.path), _PATH_CHARS)
    is_cut = reason.code is Code.CALL_UNFINISHED
    expected = "a call that was finished" if is_cut else "a JSON object"
    return Violation(path, reason.code, message, expected, None, suggestion)


def _withheld() -> Violation:
    return Violation(
        "",
        Code.REFUSED_REPEATEDLY,
        "Too many calls to this tool were refused in a row, so only the first problem is shown",
        "a call that follows the signature",
        None,
        f"Follow the signature, or wait {QUIET_SECONDS:g} s.",
    )


def _tell(
    tool: RegisteredTool, objection: Objection, refusal: Refusal, memory: RefusalHistory, agent: str
) -> None:
    if memory.bus.listeners:
        shown = partial(_shown, tool, objection)
        memory.bus.tell(ValidationFailed(tool_name=tool.name, agent=agent, refusal=refusal, arguments=shown))


def _shown(tool: RegisteredTool, objection: Objection) -> str:
    """The arguments as a log may hold them."""
    if not isinstance(objection, SchemaMismatch):
        return "(not JSON)"
    return shorten(json.dumps(tool.arguments.secrecy.redact(objection.value)), LOGGED_CHARS)
