"""Writes what agents did (`recorded_behavior.py`) as the narrowest policies that would have let them (FLO-8).

Out go Cedar policies that a person puts in force, and examples for them. Every policy forbids, so none of
them can permit what is not permitted now. Names and values from a log are attacker-chosen text: here alone
they become Cedar and YAML, always as quoted strings of printable ASCII. Reasons, which models read, are
fixed.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal

import msgspec

from toolkeep.definitions.vocabulary import Role
from toolkeep.flow.measures import AMOUNT, Measure, to_decimal
from toolkeep.flow.session_state import Origin
from toolkeep.policy.authorize import ANYTHING
from toolkeep.policy.cedar_schema import Kind, is_expressible, is_unicode, read_shape
from toolkeep.policy.recorded_behavior import TRUSTED, AgentUse, Evidence, Named, Peaks, ToolUse
from toolkeep.policy.touched_resources import TouchPlan

MARGIN: Final = 2
"""A learned bound is so many times what was usual: agents have busier days than those recorded."""
FOLDERS: Final = 20
"""Folders of one argument; more are joined to those that contain them."""
TOOLS: Final = 400
"""Tools that one policy names; it may have 65,536 characters."""
_SAMPLE_CHARS: Final = 1_000
"""Arguments of an example; YAML reads keys of up to 1,024 characters."""
_NAMED: Final = 20
"""Names and values that a comment lists."""

About = Literal["base", "tools", "state", "origin", "hosts", "folders", "measure"]
_REASONS: Final = {
    "tools": "no recorded session used this tool",
    "state": "the session has read text from outside, which may have chosen this call",
    "origin": "no recorded session took this argument from there",
    "hosts": "no recorded session reached this host by its own choice",
    "folders": "no recorded session used this folder by its own choice",
    "measure": "recorded sessions never came near so much",
}

_ASKED_ORIGIN: Final = "neither the user nor a service named this argument"


class Basis(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a clause lets pass, and the calls that it rests on."""

    what: str
    calls: int
    sessions: int
    last_at: str
    last_call: str


class Clause(msgspec.Struct, frozen=True, kw_only=True):
    """One learned policy."""

    id: str
    agent: str
    about: About
    tool: str = ""
    argument: str = ""
    asks: bool = False
    """Whether a person may lift it."""
    is_weak: bool = False
    """Whether it rests on few calls, or on one session."""
    basis: tuple[Basis, ...] = ()
    notes: tuple[str, ...] = ()
    text: str
    """The Cedar policy."""


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """A measure that nobody declared, with the budget that recorded calls suggest."""

    name: str
    agent: str
    declaration: Mapping[str, str]
    limit: str
    highest: tuple[str, ...]
    is_weak: bool


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """An example for a learned policy, as `policy check` reads it."""

    data: Mapping[str, Any]
    policy: str = ""
    """The clause that it shows; empty if it shows that a recorded call still passes."""


class Learned(msgspec.Struct, frozen=True, kw_only=True):
    """What is proposed."""

    clauses: tuple[Clause, ...]
    samples: tuple[Sample, ...]
    bounds: tuple[Bound, ...]
    crowded: tuple[str, ...] = ()
    """Agents that used more tools than a policy names, so that none forbids them the others."""

    @property
    def text(self) -> str:
        """The policies with their comments."""
        return "\n".join(map(_with_comments, self.clauses))


def learn(
    agents: Mapping[str, AgentUse],
    *,
    declared: Mapping[str, Measure],
    registered: Iterable[str],
    needs_permit: bool,
    is_standard: bool = False,
) -> Learned:
    """Policies for what agents did; `declared` measures may be read by them.

    `needs_permit`: there are no other policies, so with these alone nothing would be permitted.
    `is_standard`: the shipped policies about sessions are in force beside them.
    """
    clauses: list[Clause] = []
    samples: list[Sample] = []
    bounds: list[Bound] = []
    names = sorted(registered)
    for agent, use in sorted(agents.items()):
        if not is_unicode(agent):
            continue
        clauses += _of_agent(agent, use, names, is_standard=is_standard)
        for name, one in sorted(use.tools.items()):
            found = list(_of_tool(agent, one))
            clauses += found
            samples += _samples(agent, name, one, found)
        for name, peaks in sorted(use.peaks.items()):
            if name in declared:
                clauses.append(_of_measure(agent, peaks))
            else:
                bounds.append(_bound(agent, peaks))
    if clauses and needs_permit:
        clauses.insert(0, _base())
    crowded = tuple(agent for agent, use in sorted(agents.items()) if len(use.tools) > TOOLS)
    return Learned(clauses=tuple(clauses), samples=tuple(samples), bounds=tuple(bounds), crowded=crowded)


# --- clauses -------------------------------------------------------------------------------------


def _base() -> Clause:
    text = '@id("learned.base")\npermit (principal, action == Action::"call", resource);\n'
    note = "there are no other policies: without this one, those below would deny every call"
    return Clause(id="learned.base", agent="", about="base", notes=(note,), text=text)


def _of_agent(agent: str, use: AgentUse, registered: list[str], *, is_standard: bool) -> Iterator[Clause]:
    """What it never used does not exist for it, and neither does what is registered later."""
    used = sorted(use.tools)
    unused = [name for name in registered if name not in use.tools]
    listed = ", ".join(quoted(name) for name in unused[:_NAMED])
    more = f" and {len(unused) - _NAMED} more" if len(unused) > _NAMED else ""
    # Whatever was recorded: in such a session an outsider may have chosen the call, so none of them shows
    # that acts may pass there.
    if not is_standard and any(one.plan is not None and one.plan.acts for one in use.tools.values()):
        yield _clause(
            agent,
            "state",
            when="resource.consequential && context.state.opened",
            asks=True,
            basis=(_basis("after text from outside", use.opened),) if use.opened.calls else (),
            evidence=None,
        )
    if len(used) > TOOLS:
        return  # `Learned.crowded`
    yield _clause(
        agent,
        "tools",
        scope='action in [Action::"see", Action::"call"], resource',
        unless=f"[{', '.join(f'Tool::{quoted(name)}' for name in used)}].contains(resource)",
        basis=tuple(_basis(quoted(name), use.tools[name].calls) for name in used),
        evidence=use.calls,
        notes=(f"never used: {listed}{more}",) if unused else (),
    )


def _of_tool(agent: str, use: ToolUse) -> Iterator[Clause]:
    if use.plan is None or not use.plan.acts:
        yield from _of_places(agent, use)
        return
    for name, role in sorted(use.plan.roles.items()) if use.watched.calls else ():
        if role.carries_authority and is_expressible(name):
            yield _of_origin(agent, use, name, use.origins.get(name, {}))
    yield from _of_places(agent, use)


def _of_origin(agent: str, use: ToolUse, name: str, origins: Mapping[str, Evidence]) -> Clause:
    """The user's values are let in, and those of services if they were seen; others ask, if they were."""
    let_in = sorted({Origin.USER.value} | (origins.keys() & TRUSTED))
    return _clause(
        agent,
        "origin",
        tool=use.tool.name,
        argument=name,
        unless=f"[{', '.join(map(quoted, let_in))}].containsAll(context.flow[{quoted(name)}].origins)",
        asks=not TRUSTED.issuperset(origins),
        basis=tuple(_basis(origin, evidence) for origin, evidence in sorted(origins.items())),
        evidence=_joined(origins.values()) if origins else use.watched,
        notes=() if origins else ("no recorded call gave it",),
    )


def _of_places(agent: str, use: ToolUse) -> Iterator[Clause]:
    hosts = use.hosts
    if hosts.known and not hosts.is_full:
        names = sorted(filter(is_unicode, hosts.known))
        if _may_name_none(use):
            names.append(ANYTHING)
        yield _clause(
            agent,
            "hosts",
            tool=use.tool.name,
            unless=f"[{', '.join(map(quoted, names))}].containsAll(context.hosts)",
            **_shown_by(hosts),
        )
    shape = read_shape(use.tool.schemas.resolved)
    for name, folders in sorted(use.folders.items()):
        argument = shape.attributes.get(name)
        if folders.is_full or not folders.known or argument is None or argument.kind is not Kind.TEXT:
            continue
        where = f"context.arguments[{quoted(name)}]"
        inside = " ||\n    ".join(
            f"{where} == {quoted(folder)} || {where} like {pattern_below(folder)}"
            for folder in joined_folders(filter(is_unicode, folders.known))
        )
        yield _clause(
            agent,
            "folders",
            tool=use.tool.name,
            argument=name,
            unless=f"!(context.arguments has {quoted(name)}) ||\n    {inside}",
            **_shown_by(folders),
        )


def _shown_by(named: Named) -> dict[str, Any]:
    basis = [_basis(quoted(value), evidence) for value, evidence in sorted(named.known.items())]
    if named.others.calls:
        basis.append(_basis("others, which outsiders may have chosen", named.others))
    return {
        "basis": tuple(basis),
        "evidence": _joined(named.known.values()),
        "asks": bool(named.others.calls),
    }


def _may_name_none(use: ToolUse) -> bool:
    """Whether a call that names no host counts as one that may reach any, and there were such calls."""
    plan = TouchPlan(use.tool.definition)
    needs = any(held.kind.startswith("net.") for held in plan.required)
    named = sum(one.calls for one in use.hosts.known.values()) + use.hosts.others.calls
    return needs and named < use.calls.calls


def _of_measure(agent: str, peaks: Peaks) -> Clause:
    measure = peaks.measure
    limit = min(peaks.usual * MARGIN, AMOUNT)
    return _clause(
        agent,
        "measure",
        argument=measure.name,
        tool="" if measure.of == "calls" else measure.of,
        unless=f'context.measures[{quoted(measure.name)}].lessThanOrEqual(decimal("{to_decimal(limit)}"))',
        basis=(_basis(f"at most {_highest(peaks)} in {measure.window}", peaks.evidence),),
        evidence=peaks.evidence,
        notes=(f"{MARGIN} times what two of them reached",),
    )


def _bound(agent: str, peaks: Peaks) -> Bound:
    measure = peaks.measure
    source = f"{measure.of}/{measure.parameter}" if measure.parameter else measure.of
    return Bound(
        name=measure.name,
        agent=agent,
        declaration={
            "sum" if measure.parameter else "count": source,
            "over": "session" if measure.over_s is None else "day",
        },
        limit=to_decimal(min(peaks.usual * MARGIN, AMOUNT)).rstrip("0").rstrip("."),
        highest=tuple(_numbers(peaks)),
        is_weak=len(peaks.highest) < 2 or peaks.evidence.calls < 2,
    )


def _numbers(peaks: Peaks) -> Iterator[str]:
    for value in sorted(peaks.highest.values(), reverse=True)[:3]:
        yield to_decimal(value).rstrip("0").rstrip(".")


def _highest(peaks: Peaks) -> str:
    return ", then ".join(_numbers(peaks))


def _clause(
    agent: str,
    about: About,
    *,
    evidence: Evidence | None,
    tool: str = "",
    argument: str = "",
    scope: str = "",
    when: str = "",
    unless: str = "",
    asks: bool = False,
    basis: tuple[Basis, ...],
    notes: tuple[str, ...] = (),
) -> Clause:
    identifier = _identifier(agent, about, tool, argument)
    resource = f"resource == Tool::{quoted(tool)}" if tool else "resource"
    scope = scope or f'action == Action::"call", {resource}'
    annotations = f'@id("{identifier}") @ask' if asks else f'@id("{identifier}")'
    reason = _ASKED_ORIGIN if asks and about == "origin" else _REASONS[about]
    condition = f"when {{ {when} }}" if when else f"unless {{\n    {unless}\n}}"
    return Clause(
        id=identifier,
        agent=agent,
        about=about,
        tool=tool,
        argument=argument,
        asks=asks,
        is_weak=evidence is not None and evidence.is_weak,
        basis=basis,
        notes=notes,
        text=f'{annotations}\n@reason("{reason}")\n'
        f"forbid (principal == Agent::{quoted(agent)}, {scope})\n{condition};\n",
    )


def _identifier(agent: str, about: str, tool: str, argument: str) -> str:
    """An id that a person can read; the hash tells apart what looks the same in it."""
    digest = hashlib.sha256(json.dumps([agent, about, tool, argument]).encode()).hexdigest()[:8]
    words = [re.sub(r"[^A-Za-z0-9_-]+", "-", word)[:30] for word in (agent, tool, argument) if word]
    return ".".join(["learned", *words, about, digest])


def _basis(what: str, evidence: Evidence) -> Basis:
    return Basis(
        what=what,
        calls=evidence.calls,
        sessions=evidence.sessions,
        last_at=evidence.last_at,
        last_call=evidence.last_call,
    )


def _joined(several: Iterable[Evidence]) -> Evidence:
    """What several show together; a clause is as weak as the weakest thing that it lets pass."""
    return min(several, key=lambda one: (one.sessions >= 2, one.calls))


def _with_comments(clause: Clause) -> str:
    lines = []
    if clause.is_weak:
        lines.append("WEAK: few calls or one session show part of this; look at them before you rely on it")
    for one in clause.basis[:_NAMED]:
        seen = f"calls {one.calls}, sessions {one.sessions}, last {one.last_at} in {one.last_call}"
        lines.append(f"{one.what}: {seen}")
    if len(clause.basis) > _NAMED:
        lines.append(f"and {len(clause.basis) - _NAMED} more")
    lines += clause.notes
    return "".join(f"// {printable(line)}\n" for line in lines) + clause.text


# --- examples ------------------------------------------------------------------------------------


def _samples(agent: str, name: str, use: ToolUse, clauses: list[Clause]) -> Iterator[Sample]:
    """A recorded call that passes, and the same call after an outsider has chosen it, which does not.

    Only calls in which the user or a service named everything, of tools that take nothing sensitive. What
    carries no authority is left out: a file of policies is no place for the text of a mail.
    """
    arguments, plan = use.example, use.plan
    roles = {} if plan is None else plan.roles
    if arguments is None or plan is None or use.tool.definition.sensitive:
        return
    if Role.CREDENTIAL in roles.values():
        return
    shown = {key: _without_content(value, roles.get(key)) for key, value in arguments.items()}
    if len(json.dumps(shown)) > _SAMPLE_CHARS or not all(map(is_unicode, _words([shown]))):
        return
    call = {"tool": name, "arguments": shown}
    said = " ".join(_words(value for key, value in shown.items() if key not in plan.free))
    yield Sample(data={"agent": agent, **call, "said": said, "allow": True})
    for clause in clauses:
        if clause.about == "origin" and clause.argument in shown and shown[clause.argument]:
            expected = {"ask": clause.id} if clause.asks else {"deny": clause.id}
            yield Sample(data={"agent": agent, **call, **expected}, policy=clause.id)


def _without_content(value: Any, role: Role | None) -> Any:
    return "..." if role is Role.CONTENT and isinstance(value, str) else value


def _words(values: Iterable[Any]) -> Iterator[str]:
    waiting = list(values)
    while waiting:
        value = waiting.pop(0)
        if isinstance(value, dict):
            waiting[:0] = [*value.keys(), *value.values()]
        elif isinstance(value, list):
            waiting[:0] = value
        elif value is not None and not isinstance(value, bool):
            yield str(value)


def examples_text(samples: Iterable[Sample], holds: Callable[[Sample], bool]) -> str:
    """The examples that hold, as YAML."""
    lines = [f"- {yaml_flow(sample.data)}\n" for sample in samples if holds(sample)]
    return "".join(lines)


# --- text ----------------------------------------------------------------------------------------


def quoted(text: str) -> str:
    """A Cedar string. Whatever is not printable ASCII is escaped, so nothing looks like what it is not."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    return char if " " <= char <= "~" else f"\\u{{{ord(char):x}}}"


def pattern_below(folder: str) -> str:
    """A Cedar pattern for everything below a folder; a star in its name is no wildcard."""
    inner = "".join("\\*" if char == "*" else _escaped(char) for char in folder.rstrip("/"))
    return f'"{inner}/*"'


def printable(text: str) -> str:
    """One line of a comment: a line break would end it, and what follows would be Cedar."""
    return "".join(char if " " <= char <= "~" else f"\\u{{{ord(char):x}}}" for char in text)


def yaml_flow(data: Any) -> str:
    """Data as one line of YAML in printable ASCII."""
    text = json.dumps(data, ensure_ascii=False)
    return "".join(char if " " <= char <= "~" else _yaml_escaped(ord(char)) for char in text)


def _yaml_escaped(code: int) -> str:
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def joined_folders(folders: Iterable[str]) -> list[str]:
    """At most `FOLDERS` folders that contain all of these, without those that lie in another."""
    found = set(folders)
    while len(found) > FOLDERS:
        deepest = max(found, key=lambda one: (one.count("/"), one))
        found = {one for one in found if one != deepest} | {deepest.rpartition("/")[0] or "/"}
    return sorted(
        one
        for one in found
        if not any(one != other and one.startswith(f"{other.rstrip('/')}/") for other in found)
    )
