"""Roles of arguments that nobody declared, from what a definition says anyway (FLO-2).

In: a definition and its marks. Out: the role of each parameter. A declared role comes first, then what a
parameter touches, then its place in the request of an imported operation, then its `format`. The last two are
the upstream's word, so they only ever make a call stricter: every role that they give carries authority, like
`record`, which an argument has of which nothing is known.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from toolkeep.definitions.argument_roles import ArgumentMarks
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.definitions.vocabulary import Role
from toolkeep.json_values.pointers import referred

ADDRESSES: Final = frozenset({"uri", "uri-reference", "iri", "iri-reference", "hostname", "idn-hostname"})
"""Formats of what a call contacts, be it only to read: the address says something by itself."""
_MAIL: Final = frozenset({"email", "idn-email"})
"""Formats of what a call that may write sends something to; one that reads looks it up."""
_DEPTH: Final = 8
"""References and alternatives of a parameter that are followed."""


class Roles(NamedTuple):
    """The roles of a tool's parameters."""

    by_name: Mapping[str, Role]
    destinations: frozenset[str]
    """Where something is sent by what was declared: a person who agrees to these agrees to the call.

    Not by format alone: an upstream could give the format to one argument, and send to another.
    """


def roles_of(definition: ToolDefinition, *, may_write: bool) -> Roles:
    """The role of each parameter."""
    declared, marks = definition.roles, ArgumentMarks(definition.parameters)
    formats = ADDRESSES | _MAIL if may_write else ADDRESSES
    roles: dict[str, Role] = {}
    destinations = set()
    for name, schema in definition.properties.items():
        if marks.is_credential(name):
            roles[name] = Role.CREDENTIAL
        elif name in declared:
            roles[name] = declared[name]
        elif touches := marks.touches(name):
            is_sent = any(mark.kind.startswith("net.") for mark in touches)
            roles[name] = Role.DESTINATION if is_sent else Role.TARGET
        elif not formats.isdisjoint(_formats(definition.parameters, schema)):
            roles[name] = Role.DESTINATION
            continue
        else:
            roles[name] = _by_place(definition, name)
        if roles[name] is Role.DESTINATION:
            destinations.add(name)
    return Roles(roles, frozenset(destinations))


def _by_place(definition: ToolDefinition, name: str) -> Role:
    """An id in the path of an HTTP operation names what the operation is about."""
    request = definition.metadata.get("request")
    if definition.source.kind != "openapi" or not isinstance(request, Mapping):
        return Role.RECORD
    sent = request.get("sent")
    if not isinstance(sent, Mapping) or not str(sent.get(name, "")).startswith("path "):
        return Role.RECORD
    return Role.DESTROYS if request.get("method") == "DELETE" else Role.TARGET


def _formats(root: Mapping[str, Any], schema: Any) -> Iterator[str]:
    """The formats that a parameter, or each of its items, may have."""
    for part in alternatives(root, schema):
        if isinstance(stated := part.get("format"), str):
            yield stated


def alternatives(root: Mapping[str, Any], schema: Any, depth: int = _DEPTH) -> Iterator[Mapping[str, Any]]:
    """The schemas that a parameter, or each of its items, may satisfy."""
    if not isinstance(schema, Mapping) or not depth:
        return
    yield schema
    below = [schema.get("items")]
    for word in ("anyOf", "oneOf", "allOf"):
        below += schema.get(word) or ()
    with contextlib.suppress(KeyError):
        below += [referred(root, schema["$ref"])] if "$ref" in schema else []
    for one in below:
        yield from alternatives(root, one, depth - 1)
