"""`toolkeep.lock`: every upstream of a project and each of its definitions, one line each, to be committed.

In: bytes that anybody may have written, or what is pinned. Out: a `Lock`, the same bytes for the same
content, or the differences of two. A lock grants nothing: it counts once a person here has accepted it, and
from then on the pins in the state hold it. Otherwise a cloned repository could bring its own approvals.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from toolkeep.compat.definition_diff import Change, Weight, changes_between, is_renamed, verdict
from toolkeep.definitions.serialization import definition_from_dict
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.definitions.version_order import fold
from toolkeep.errors import LockInvalid, ToolkeepError
from toolkeep.json_values.canonical import canonical_bytes, canonical_hash
from toolkeep.limits import DOCUMENT_DEPTH
from toolkeep.stores.registry_state import Pin
from toolkeep.validation.parse import NotStrictJson, parse_json_fully

LOCK_FILE: Final = "toolkeep.lock"
LOCK_VERSION: Final = 2
"""2 for a lock with packages, which earlier releases do not know; 1 for any other."""
_ABOUT: Final = "Written by `toolkeep lock`. See docs/upstream.md."
_LINES: Final = 100_000
"""More tools than any project has; bounds the memory that a hostile file takes."""
_TOOL_KEYS: Final = {"upstream", "tool", "version", "hash", "definition"}
_PACKAGE_KEYS: Final = {"upstream", "package", "version", "integrity"}


class LockedPackage(msgspec.Struct, frozen=True, kw_only=True):
    """A package that the server of an upstream consists of."""

    name: str
    """With its ecosystem: `npm:ms`, `pypi:mcp`."""
    version: str
    integrity: str
    """Hash of its archive, as Subresource Integrity writes it: `sha512-…`."""


class Lock(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a lock."""

    upstreams: Mapping[str, Mapping[str, str]]
    """The identity of each upstream, by origin, such as `openapi:shop`."""
    tools: Mapping[tuple[str, str], Pin]
    """By origin and folded name."""
    packages: Mapping[str, tuple[LockedPackage, ...]] = {}
    """By origin."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One difference from the lock, in plain words."""

    upstream: str
    tool: str
    what: str
    weight: Weight
    changes: tuple[Change, ...] = ()

    def lines(self) -> Iterator[str]:
        """The text, line by line."""
        subject = f"{self.upstream} {self.tool}".rstrip()
        yield f"{subject}: {self.what} ({self.weight.name.lower()})"
        yield from (f"  {change}" for change in self.changes)

    def to_dict(self) -> dict[str, Any]:
        """The difference as JSON data."""
        return {
            "upstream": self.upstream,
            "tool": self.tool,
            "what": self.what,
            "weight": self.weight.name.lower(),
            "changes": [str(change) for change in self.changes],
        }


def write_lock(lock: Lock) -> bytes:
    """The file: a sorted line for each upstream and each tool, the same bytes for the same content."""
    lines = [_text({"toolkeep.lock": LOCK_VERSION if any(lock.packages.values()) else 1, "about": _ABOUT})]
    for origin in sorted(lock.upstreams):
        lines.append(_text({"upstream": origin, "identity": dict(sorted(lock.upstreams[origin].items()))}))
        lines += [_package_line(origin, package) for package in lock.packages.get(origin, ())]
        named = sorted(pin.name for pin in lock.tools.values() if pin.origin == origin)
        lines += [_tool_line(lock.tools[origin, name]) for name in named]
    return ("\n".join(lines) + "\n").encode()


def read_lock(raw: bytes, path: str) -> Lock:
    """Parse a lock; `LockInvalid` names the bad line."""
    lines = raw.split(b"\n")
    if len(lines) > _LINES:
        raise LockInvalid(path, 0, f"it has more than {_LINES} lines")
    upstreams: dict[str, Mapping[str, str]] = {}
    tools: dict[tuple[str, str], Pin] = {}
    packages: dict[str, tuple[LockedPackage, ...]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        data = _parsed(line, path, number)
        if number == 1:
            _check_head(data, path)
        elif "tool" in data:
            pin = _read_tool(data, path, number)
            if tools.setdefault(pin.key, pin) is not pin:
                raise LockInvalid(path, number, f"it names {pin.name!r} twice")
        elif "package" in data:
            origin, package = _read_package(data, path, number)
            packages[origin] = (*packages.get(origin, ()), package)
        else:
            origin, identity = _read_upstream(data, path, number)
            if origin in upstreams:
                raise LockInvalid(path, number, f"it names {origin!r} twice")
            upstreams[origin] = identity
    if not lines[0].strip():
        raise LockInvalid(path, 1, "it is empty")
    if strange := {*packages, *(pin.origin for pin in tools.values())} - upstreams.keys():
        what = f"it has tools or packages of {min(strange)!r} and no line for that upstream"
        raise LockInvalid(path, 0, what)
    return Lock(upstreams=upstreams, tools=tools, packages=packages)


def differences(before: Lock, after: Lock) -> list[Difference]:
    """All differences of two locks, by upstream."""
    found: list[Difference] = []
    for origin in sorted({*before.upstreams, *after.upstreams}):
        found += _of_upstream(origin, before, after)
    return found


def _of_upstream(origin: str, before: Lock, after: Lock) -> Iterator[Difference]:
    if origin not in before.upstreams or origin not in after.upstreams:
        what = "is new" if origin in after.upstreams else "is gone"
        yield Difference(upstream=origin, tool="", what=what, weight=Weight.MAJOR)
    else:
        yield from _of_identity(origin, before.upstreams[origin], after.upstreams[origin])
        changes = package_changes(before.packages.get(origin, ()), after.packages.get(origin, ()))
        for what in changes:
            yield Difference(upstream=origin, tool="", what=what, weight=Weight.MAJOR)
    old = {pin.name: pin for pin in before.tools.values() if pin.origin == origin}
    new = {pin.name: pin for pin in after.tools.values() if pin.origin == origin}
    gone = [old[name] for name in sorted(old.keys() - new.keys())]
    came = [new[name] for name in sorted(new.keys() - old.keys())]
    yield from _renames(origin, gone, came)
    for pin in gone:
        yield Difference(upstream=origin, tool=pin.name, what="removed", weight=Weight.MAJOR)
    for pin in came:
        yield Difference(upstream=origin, tool=pin.name, what="new", weight=Weight.MINOR)
    for name in sorted(old.keys() & new.keys()):
        yield from _of_tool(origin, old[name], new[name])


def _of_identity(origin: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Difference]:
    for key in sorted({*old, *new}):
        if old.get(key) != new.get(key):
            what = f"{key} was {json.dumps(old.get(key))} and is {json.dumps(new.get(key))}"
            weight = Weight.PATCH if key in ("title", "version") else Weight.MAJOR
            yield Difference(upstream=origin, tool="", what=what, weight=weight)


def package_changes(before: Iterable[LockedPackage], after: Iterable[LockedPackage]) -> Iterator[str]:
    """What changed between two sets of packages, one line for each name."""
    old, new = _by_name(before), _by_name(after)
    for name in sorted({*old, *new}):
        was, now = old.get(name, {}), new.get(name, {})
        if was == now:
            continue
        if not was or not now:
            yield f"package {name} {', '.join(was or now)} {'removed' if was else 'new'}"
        elif was.keys() == now.keys():
            yield f"package {name} {', '.join(now)} has another integrity hash under the same version"
        else:
            yield f"package {name} was {', '.join(was)} and is {', '.join(now)}"


def _by_name(packages: Iterable[LockedPackage]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for package in packages:
        found.setdefault(package.name, {})[package.version] = package.integrity
    return found


def _renames(origin: str, gone: list[Pin], came: list[Pin]) -> Iterator[Difference]:
    """Tools that were renamed; they are removed from both lists."""
    for old in list(gone):
        definition = _definition(old)
        match = next((new for new in came if is_renamed(definition, _definition(new))), None)
        if match is not None:
            gone.remove(old)
            came.remove(match)
            what = f"renamed to '{match.name}'"
            changes = tuple(c for c in changes_between(definition, _definition(match)) if c.field != "name")
            yield Difference(upstream=origin, tool=old.name, what=what, weight=Weight.MAJOR, changes=changes)


def _of_tool(origin: str, old: Pin, new: Pin) -> Iterator[Difference]:
    if old.definition_hash == new.definition_hash:
        return
    changes = changes_between(_definition(old), _definition(new))
    yield Difference(upstream=origin, tool=old.name, what="changed", weight=verdict(changes), changes=changes)


def _definition(pin: Pin) -> ToolDefinition:
    return definition_from_dict(pin.definition)


def of_origins(lock: Lock, origins: Iterable[str]) -> Lock:
    """The part of a lock about these upstreams."""
    wanted = set(origins)
    return Lock(
        upstreams={origin: who for origin, who in lock.upstreams.items() if origin in wanted},
        tools={key: pin for key, pin in lock.tools.items() if pin.origin in wanted},
        packages={origin: found for origin, found in lock.packages.items() if origin in wanted},
    )


def pinned_lock(pins: Iterable[Pin], offered: Lock) -> Lock:
    """The lock of what is accepted of the offered upstreams."""
    kept = {pin.key: pin for pin in pins if pin.origin in offered.upstreams and pin.is_accepted}
    return msgspec.structs.replace(offered, tools=kept)


def arriving_lock(
    pins: Iterable[Pin],
    identities: Mapping[str, Mapping[str, str]],
    packages: Mapping[str, tuple[LockedPackage, ...]] | None = None,
) -> Lock:
    """The lock of what these upstreams offer now, accepted or not."""
    arrived = (_as_it_arrives(pin) for pin in pins if pin.origin in identities)
    return Lock(upstreams=identities, tools={pin.key: pin for pin in arrived}, packages=packages or {})


def _as_it_arrives(pin: Pin) -> Pin:
    if pin.pending is None:
        return pin
    return Pin(
        origin=pin.origin,
        name=pin.name,
        definition_hash=pin.pending_hash,
        version=pin.version,
        definition=pin.pending,
    )


def _text(data: Mapping[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def _tool_line(pin: Pin) -> str:
    head = {"upstream": pin.origin, "tool": pin.name, "version": pin.version, "hash": pin.definition_hash}
    return f'{_text(head)[:-1]},"definition":{canonical_bytes(pin.definition).decode()}}}'


def _package_line(origin: str, package: LockedPackage) -> str:
    named = {"upstream": origin, "package": package.name}
    return _text({**named, "version": package.version, "integrity": package.integrity})


def _parsed(line: bytes, path: str, number: int) -> dict[str, Any]:
    if line.startswith((b"<<<<<<<", b"=======", b">>>>>>>", b"|||||||")):
        raise LockInvalid(path, number, "two versions of it were not merged")
    try:
        data = parse_json_fully(line, depth=DOCUMENT_DEPTH)
    except NotStrictJson:
        raise LockInvalid(path, number, "the line is not JSON") from None
    if not isinstance(data, dict):
        raise LockInvalid(path, number, "the line is no object")
    return data


def _check_head(data: dict[str, Any], path: str) -> None:
    version = data.get("toolkeep.lock")
    if type(version) is int and version > LOCK_VERSION:
        reason = f"it has format {version}, but this toolkeep supports only up to {LOCK_VERSION}"
        raise LockInvalid(path, 1, reason)
    if type(version) is not int or not 1 <= version <= LOCK_VERSION:
        raise LockInvalid(path, 1, "it does not begin as a lock of this version does")


def _read_upstream(data: dict[str, Any], path: str, number: int) -> tuple[str, Mapping[str, str]]:
    origin, identity = data.get("upstream"), data.get("identity")
    is_text = isinstance(identity, dict) and all(isinstance(v, str) for v in identity.values())
    if set(data) != {"upstream", "identity"} or not isinstance(origin, str) or not is_text:
        raise LockInvalid(path, number, "it is the line neither of a tool nor of an upstream")
    return origin, dict(identity or {})


def _read_package(data: dict[str, Any], path: str, number: int) -> tuple[str, LockedPackage]:
    if set(data) != _PACKAGE_KEYS or not all(isinstance(value, str) for value in data.values()):
        raise LockInvalid(path, number, "it is not the line of a package")
    package = LockedPackage(name=data["package"], version=data["version"], integrity=data["integrity"])
    return data["upstream"], package


def _read_tool(data: dict[str, Any], path: str, number: int) -> Pin:
    texts = [data.get(key) for key in ("upstream", "tool", "version", "hash")]
    definition = data.get("definition")
    if (
        set(data) != _TOOL_KEYS
        or not all(isinstance(t, str) for t in texts)
        or not isinstance(definition, dict)
    ):
        raise LockInvalid(path, number, "it is not the line of a tool")
    origin, name, version, stated = map(str, texts)
    try:
        made = definition_from_dict(definition)
    except ToolkeepError:
        raise LockInvalid(path, number, f"the definition of {name!r} cannot be read") from None
    # A person reviews the definition, and the hash is what is pinned: if they could differ, the lock would
    # pin something that nobody saw.
    if canonical_hash(definition) != stated or made.hash != stated:
        raise LockInvalid(path, number, f"the hash of {name!r} is not that of its definition")
    if fold(made.name) != name or f"{made.source.kind}:{made.source.origin}" != origin:
        raise LockInvalid(path, number, f"the definition of {name!r} is that of another tool")
    return Pin(origin=origin, name=name, definition_hash=stated, version=version, definition=definition)
