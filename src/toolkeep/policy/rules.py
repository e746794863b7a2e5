"""Rules that people make by saying "always": the narrow Cedar permit for calls like one that was asked about.

A rule names agent, tool and every argument with its value. A call that Cedar cannot say in full gets no rule,
and none ever covers it: an argument that is left out could be anything. Neither does one that is longer than
what a person looks at.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from toolkeep.calls import PermittedCall, TouchedThing
from toolkeep.limits import RULE_CHARS
from toolkeep.network.hosts import Host
from toolkeep.policy.cedar_schema import Kind, Shape
from toolkeep.policy.cedar_values import ArgumentShape, Path
from toolkeep.policy.engine import AgentEntity, CallFacts, Engine
from toolkeep.policy.policies import PoliciesRefused
from toolkeep.policy.reading import read_policies
from toolkeep.policy.settings import PolicySource
from toolkeep.policy.touched import PROCESS_SPAWN


class HeldRule(Protocol):
    """A rule as it is kept."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def text(self) -> str:
        """Its Cedar text."""

    @property
    def definition_hash(self) -> str:
        """The definition that it is about."""


Held = TypeVar("Held", bound=HeldRule)


class RuleJudge:
    """Writes rules, and says which covers a call."""

    def __init__(self) -> None:
        self._engines: dict[str, Engine | None] = {}

    def write(self, call: PermittedCall, rule_id: str) -> str:
        """The rule for a call; empty where none can say exactly it."""
        shape = ArgumentShape(call.tool.arguments.schema).shape
        lost: list[Path] = []
        record = ArgumentShape(call.tool.arguments.schema).record(
            call.checked.arguments, _canonical(call), lost
        )
        if lost or call.tool.arguments.secrecy.has_secrets or not _is_sayable(shape, record):
            return ""
        if _is_long(record) or _has_null(call.checked.arguments) or any(map(_is_cut, call.touched)):
            return ""
        agent, tool = _text(call.request.agent), _text(call.tool.name)
        head = f'permit (principal == Agent::{agent}, action == Action::"call", resource == Tool::{tool})'
        conditions = [*_conditions("context.arguments", shape, record), *_programs_condition(call)]
        body = " &&\n  ".join(conditions)
        return f'@id("{rule_id}")\n{head}' + (f"\nwhen {{\n  {body}\n}};" if conditions else ";")

    def covering(self, call: PermittedCall, rules: Sequence[Held]) -> Held | None:
        """The rule that covers a call, and was made for this very definition."""
        if not self.write(call, "any"):
            return None
        facts = CallFacts(
            arguments=call.checked.arguments,
            canonical=_canonical(call),
            programs=frozenset(_programs(call)),
            session=call.request.session,
            conversation=call.request.conversation,
        )
        agent = AgentEntity(id=call.request.agent)
        for rule in rules:
            engine = self._engine(rule) if rule.definition_hash == call.tool.definition_hash else None
            if engine is not None and engine.decide(agent, call.tool, facts).is_allowed:
                return rule
        return None

    def _engine(self, rule: HeldRule) -> Engine | None:
        held = self._engines  # read once: other threads put others in its place
        if rule.text in held:
            return held[rule.text]
        try:
            engine = Engine(read_policies([PolicySource(name=rule.id, text=rule.text)]))
        except PoliciesRefused:  # nothing that we wrote: it covers nothing
            engine = None
        self._engines = {**(held if len(held) < 1_000 else {}), rule.text: engine}
        return engine


def _canonical(call: PermittedCall) -> dict[str, str]:
    return {one.pointer: one.shown for one in call.touched if one.pointer}


def _programs(call: PermittedCall) -> list[str]:
    """The programs that commands in the arguments begin with."""
    return sorted({one.shown for one in call.touched if one.pointer and one.kind == PROCESS_SPAWN})


def _programs_condition(call: PermittedCall) -> Iterator[str]:
    # In another folder, or by another PATH, the same words start another program.
    if programs := _programs(call):
        yield f"context.programs == [{', '.join(map(_text, programs))}]"


def _is_cut(one: TouchedThing) -> bool:
    """Whether policies see less than the argument says: of a URL neither scheme nor path."""
    return isinstance(getattr(one, "thing", None), Host) and bool(one.pointer)


def _has_null(value: Any) -> bool:
    """Whether there is a null, which Cedar cannot tell from nothing."""
    if isinstance(value, dict):
        return any(map(_has_null, value.values()))
    return value is None


def _is_sayable(shape: Shape, record: Mapping[str, Any]) -> bool:
    """Whether the record is all scalars: in a set, order and number would be lost."""
    for name, value in record.items():
        inside = shape.attributes[name]
        if inside.kind is Kind.SET or (inside.kind is Kind.RECORD and not _is_sayable(inside, value)):
            return False
    return True


def _is_long(record: Mapping[str, Any]) -> bool:
    """Whether there is more to say than is read before "always" is said."""
    return sum(map(len, _texts(record))) > RULE_CHARS


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inside in value.values():
            yield from _texts(inside)


def _conditions(path: str, shape: Shape, record: Mapping[str, Any]) -> Iterator[str]:
    for name, inside in sorted(shape.attributes.items()):
        key = _text(name)
        if name not in record:
            if name not in shape.required:
                yield f"!({path} has {key})"
            continue
        if name not in shape.required:
            yield f"{path} has {key}"
        if inside.kind is Kind.RECORD:
            yield from _conditions(f"{path}[{key}]", inside, record[name])
        else:
            yield f"{path}[{key}] == {_literal(record[name])}"


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if value >= 0 else f"({value})"
    if isinstance(value, dict):
        return f"decimal({_text(value['__extn']['arg'])})"
    return _text(value)


def _text(text: str) -> str:
    """A Cedar string literal."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(char: str) -> str:
    if char in '\\"':
        return f"\\{char}"
    return char if char.isprintable() else f"\\u{{{ord(char):x}}}"
