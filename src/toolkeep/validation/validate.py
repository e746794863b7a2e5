"""Validate the arguments of a call: a `CheckedCall` or a `Refusal` comes out. Nothing else makes a
`CheckedCall`.

Arguments are hostile. They must be strict JSON, within the limits on size, depth and work, and match the
schema exactly; nothing is coerced. Any failure inside is a refusal, never a pass. The common path (a small
valid call) costs little more than the parser and the engine.
"""

import re
from itertools import chain
from typing import Any, Final

import jiter

from toolkeep.calls import CheckedCall, Refusal, RegisteredTool, Unreadable
from toolkeep.errors import Code
from toolkeep.limits import BRACKETS, MATCHED_CHARS
from toolkeep.validation.call_size import EXPONENT, Size, size_of, without_collector
from toolkeep.validation.compile import CompiledSchema
from toolkeep.validation.default_growth import FillingPlan
from toolkeep.validation.finish import Finisher
from toolkeep.validation.member_count import has_unique_keys
from toolkeep.validation.parse import (
    NotStrictJson,
    Objection,
    SchemaMismatch,
    Snapshot,
    as_bytes,
    check_numbers_and_depth,
    may_overflow,
    parse_json,
    too_many_containers,
    why_not_json,
)
from toolkeep.validation.refusal_history import Caller, RefusalHistory

Arguments = bytes | str | bytearray | memoryview | dict[str, Any] | Unreadable

_from_json = jiter.from_json
_LARGE_BYTES: Final = 65_536
"""From here on, pausing the garbage collector saves more than it costs."""
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)


def validate(
    tool: RegisteredTool,
    arguments: Arguments,
    refusals: RefusalHistory,
    agent: str,
    conversation: str = "",
    correlation_id: str = "",
) -> CheckedCall | Refusal:
    """Validate the arguments of one call."""
    if isinstance(arguments, (bytes, str, bytearray)) and len(arguments) > _LARGE_BYTES:
        with without_collector():
            return _validate(tool, arguments, refusals, agent, conversation, correlation_id)
    return _validate(tool, arguments, refusals, agent, conversation, correlation_id)


def _validate(
    tool: RegisteredTool,
    arguments: Arguments,
    refusals: RefusalHistory,
    agent: str,
    conversation: str,
    correlation_id: str,
) -> CheckedCall | Refusal:
    objection: Objection
    schema = tool.arguments
    try:
        value = _directly(schema, arguments) if schema.decode is not None else None
        if value is None:
            value = _by_the_engine(schema, arguments)
        if type(value) is not SchemaMismatch:
            if refusals.rows:
                refusals.forget(agent, tool.definition.name)
            return CheckedCall(tool, value)
        objection = value
    except Exception as error:  # noqa: BLE001 -- fail closed: an error here is a refusal, never a pass
        objection = _objection(error, arguments)
    from toolkeep.validation.explain_refusal import explain

    return explain(
        tool, arguments, objection, refusals, Caller(str(agent), str(conversation), correlation_id)
    )


def _directly(schema: CompiledSchema, arguments: Arguments) -> Any:
    """The arguments, if they are text that can be read and checked in one go; None if that is not sure."""
    decode, members = schema.decode, schema.members
    if decode is None or members is None:
        return None
    try:
        raw = arguments.encode() if type(arguments) is str else arguments
        if type(raw) is not bytes or len(raw) > schema.uncounted_bytes:
            return None
        value = decode(raw)
    except Exception:  # noqa: BLE001 -- whatever it is, the engine decides, and says why
        return None
    count = members.count(value)
    if raw.count(b":") != count and not has_unique_keys(raw, count):
        return None  # a key stands twice, or one that the schema does not list; or strings hold colons
    if schema.filler is not None:
        schema.filler.finish_object(value)
    return value


def _by_the_engine(schema: CompiledSchema, arguments: Arguments) -> Any:
    """The arguments, or the value that violates the schema; raises if it is not strict JSON."""
    members = schema.members
    raw = size = None
    if type(arguments) is bytes:
        raw = arguments
    elif type(arguments) is str:
        raw = arguments.encode()
    elif isinstance(arguments, (bytearray, memoryview)):
        raw = bytes(arguments)
    if raw is None:
        value, size = _copy(schema, arguments)
    elif members is not None and len(raw) <= schema.uncounted_bytes:
        value = _from_json(raw, allow_inf_nan=False)
    else:
        value, size = _read(schema, raw)
    if not schema.is_valid(value):
        return SchemaMismatch(value, size)
    # The parser did not look for duplicate keys; count members instead (see `member_count`).
    if raw is not None and members is not None:
        count = members.count(value)
        if raw.count(b":") != count and not has_unique_keys(raw, count):
            value = parse_json(raw)
    if schema.finisher is not None:
        if schema.filling is not None and (raw is None or len(raw) > schema.uncounted_bytes):
            _check_filling(schema.filling, schema.finisher, raw, value)
        schema.finisher.finish_object(value)
    return value


def _check_filling(filling: FillingPlan, finisher: Finisher, raw: bytes | None, value: Any) -> None:
    """Refuse a call whose defaults would grow without bound: an attacker sends ten thousand empty objects."""
    if raw is not None and raw.count(b"{") <= filling.uncounted_objects:
        return
    if not filling.affords(finisher, value):
        raise NotStrictJson(
            "filling in the defaults of these arguments would take too much work",
            "send fewer objects, in several calls",
            code=Code.WORK_EXCEEDED,
        )


def _objection(error: Exception, arguments: Arguments) -> Objection:
    """The reason for a refusal, from an exception."""
    if isinstance(error, NotStrictJson):
        return error
    if isinstance(error, UnicodeEncodeError):
        return NotStrictJson("text contains a lone surrogate", "send valid Unicode")
    if isinstance(error, ValueError) and type(arguments) in (str, bytes, bytearray, memoryview):
        return why_not_json(as_bytes(arguments))
    return NotStrictJson("the arguments could not be checked", "send simpler values", code=Code.CHECK_FAILED)


def _read(schema: CompiledSchema, raw: bytes) -> tuple[Any, Size | None]:
    """Parse a text that is large, or whose schema is open.

    Duplicate keys are left to the member count, if there is one. Returns the size too, if it was measured.
    """
    size = None
    is_large = len(raw) > schema.uncounted_bytes
    is_heavy = is_large and _is_heavy(schema, raw)
    value = _from_json(raw, allow_inf_nan=False, catch_duplicate_keys=schema.members is None)
    if is_heavy:
        size = _check_size(schema, len(raw), value)
    if is_large and _may_hold_long_text(raw):
        _check_lengths(schema, value)
    if schema.is_open:
        size = _look_where_the_engine_does_not(schema, raw, value, size)
    return value, size


def _copy(schema: CompiledSchema, arguments: object) -> tuple[Any, Size]:
    """Copy arguments that are Python data: the caller could change the original between check and run
    (TOCTOU)."""
    if type(arguments) is Unreadable:
        raise NotStrictJson(arguments.message, arguments.suggestion, code=arguments.code)
    limits = schema.limits
    snapshot = Snapshot(
        arguments, depth=limits.argument_depth, values=limits.argument_bytes, containers=BRACKETS
    )
    size = _check_size(schema, snapshot.values + snapshot.chars, snapshot.value)
    _check_lengths(schema, snapshot.value)
    return snapshot.value, size


def _is_heavy(schema: CompiledSchema, raw: bytes) -> bool:
    """Whether a call must be measured exactly after parsing; raises if it is too big to parse.

    The estimate from the raw bytes only admits, because it counts marks inside strings too. Above it the
    exact measure decides, unless the brackets alone make the call too big to parse: each costs the parser a
    container, and an attacker sends a million.
    """
    if len(raw) > schema.limits.argument_bytes:
        raise _too_big(schema)
    brackets = raw.count(b"[") + raw.count(b"{")
    if brackets > BRACKETS and _brackets_outside_strings(raw) > BRACKETS:
        raise too_many_containers(BRACKETS)
    if schema.cost.compares_items:
        return True
    marks = brackets + raw.count(b",") + raw.count(b":") + 1
    powers = EXPONENT * (raw.count(b"e") + raw.count(b"E")) + len(raw) if schema.cost.exponent_steps else 0
    most = Size(marks, chars=len(raw), wide_digits=len(raw), numbers=marks, exponents=powers)
    return schema.cost.work(most) > schema.limits.work


def _brackets_outside_strings(raw: bytes) -> int:
    """The opening brackets outside strings."""
    # Without escapes every quote opens or closes a string, and splitting is ten times as fast.
    outside = _STRING.sub(b"", raw) if b"\\" in raw else b"".join(raw.split(b'"')[::2])
    return outside.count(b"[") + outside.count(b"{")


def _check_size(schema: CompiledSchema, total: int, value: Any) -> Size:
    if total > schema.limits.argument_bytes:
        raise _too_big(schema)
    size = size_of(value, stop_at=schema.limits.work // schema.cost.steps)
    if schema.cost.work(size) > schema.limits.work:
        raise _too_much_work()
    return size


def _check_lengths(schema: CompiledSchema, value: Any) -> None:
    """Refuse property names and strings that are too long to match patterns against."""
    if schema.cost.matches_keys or schema.limits_strings:
        name, text = _longest(value)
        if schema.cost.matches_keys and name > MATCHED_CHARS:
            raise _too_long("a property name")
        if schema.limits_strings and text > MATCHED_CHARS:
            raise _too_long("a text")


def _may_hold_long_text(raw: bytes) -> bool:
    """Whether a name or string may be too long to match; a quick test, because visiting each takes long."""
    return b'\\"' in raw or max(map(len, raw.split(b'"'))) > MATCHED_CHARS


def _too_long(what: str) -> NotStrictJson:
    reason = f"{what} is longer than {MATCHED_CHARS} characters"
    return NotStrictJson(reason, "send something shorter", code=Code.ARGUMENTS_TOO_BIG)


def _longest(value: Any) -> tuple[int, int]:
    """The lengths of the longest property name and of the longest string, level by level as in `size_of`."""
    name = text = 0
    level = [value]
    while level:
        texts = [one for one in level if one.__class__ is str]
        objects = [one for one in level if one.__class__ is dict]
        arrays = [one for one in level if one.__class__ is list]
        text = max(text, max(map(len, texts), default=0))
        name = max(name, max(map(len, chain.from_iterable(objects)), default=0))
        level = [*chain.from_iterable(map(dict.values, objects)), *chain.from_iterable(arrays)]
    return name, text


def _look_where_the_engine_does_not(
    schema: CompiledSchema, raw: bytes, value: Any, size: Size | None
) -> Size | None:
    """Check places that the engine does not: numbers beyond a float, and nesting depth.

    Returns the size, if measured.
    """
    depth = schema.limits.argument_depth
    may_be_deep = len(raw) > 2 * depth and raw.count(b"[") + raw.count(b"{") > depth
    if size is None and (may_be_deep or may_overflow(raw)):
        size = size_of(value)
    if size is not None:
        check_numbers_and_depth(size, depth)
    return size


def _too_big(schema: CompiledSchema) -> NotStrictJson:
    return NotStrictJson(
        f"arguments are over {schema.limits.argument_bytes} bytes",
        "send less, or refer to a file",
        code=Code.ARGUMENTS_TOO_BIG,
    )


def _too_much_work() -> NotStrictJson:
    return NotStrictJson(
        "checking these arguments would take too much work",
        "send fewer or shorter values, in several calls",
        code=Code.WORK_EXCEEDED,
    )
