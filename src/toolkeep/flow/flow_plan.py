"""What flow has to know of a tool, worked out once for each definition (FLO-1, FLO-2).

In: a registered tool. Out: a `Plan` with the role of each argument, the reader of its results, and whether a
call of it acts or sends something out. Whatever is not declared counts as the worst: an argument
without a role carries authority, a string without a label is text from outside.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from toolkeep.calls import RegisteredTool
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.definitions.vocabulary import Role, SideEffect
from toolkeep.flow.default_roles import alternatives, roles_of
from toolkeep.flow.result_reader import ResultReader
from toolkeep.json_values.frozen import objects_in

READ_TEXT: Final = "read_text"
FIND_IN_TEXT: Final = "find_in_text"
ASK_READER: Final = "ask_reader"
VIEW_TOOLS: Final = frozenset({READ_TEXT, FIND_IN_TEXT, ASK_READER})
"""The built-in tools for references."""
WORD_CHARS: Final = 64
"""The longest `enum` member of an output schema that counts as a word of the definition."""
ACTING_READS: Final = frozenset({"net.read", "net.write", "process.spawn"})
"""Marks of arguments that make a reading call an act: the address that it reads says something by itself."""
_NET: Final = ("net.read", "net.write")
_LEAVING: Final = frozenset(
    {
        SideEffect.NET_READ,
        SideEffect.NET_WRITE,
        SideEffect.WRITES,
        SideEffect.DB_WRITE,  # others read it
        SideEffect.PROCESS_SPAWN,  # it may send anything, where nothing confines it
    }
)


class Plan(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The flow of one tool."""

    tool: str
    roles: Mapping[str, Role]
    """Of every declared parameter."""
    free: frozenset[str]
    """Parameters that carry no authority."""
    destinations: frozenset[str]
    """The parameters that somebody declared to be where something is sent."""
    choices: Mapping[str, frozenset[Any]]
    """Values of a parameter that the definition itself names, by its name."""
    reader: ResultReader
    names: frozenset[str]
    """Every property that its parameters name, at any depth."""
    acts: bool
    """Whether a call may change something, or say something by what it reads."""
    leaves: bool
    """Whether a call may send something out of the keep."""
    gives_content: bool = False
    """Whether its results are content blocks of MCP."""
    shows_text: bool = False
    """Whether it is what shows a text where views are typed."""
    answers_schema: bool = False
    """Whether its labels are those of the schema in its arguments."""

    def role(self, name: str) -> Role:
        """The role of an argument."""
        return self.roles.get(name, Role.RECORD)

    @property
    def role_words(self) -> list[str]:
        """The roles of its parameters, as policies read them."""
        return sorted({role.value for role in self.roles.values()})


def make_plan(tool: RegisteredTool) -> Plan:
    """The plan of a tool."""
    definition = tool.definition
    roles, destinations = roles_of(definition, may_write=tool.may_write)
    is_sent = Role.DESTINATION in roles.values()
    effects = definition.effects
    touched = definition.touched_kinds
    return Plan(
        tool=tool.name,
        roles=roles,
        free=frozenset(name for name, role in roles.items() if not role.carries_authority),
        destinations=destinations,
        choices=dict(_choices(definition, roles)),
        reader=ResultReader(definition.flow or {}, frozenset(_words(definition.output_schema))),
        names=frozenset(_names(definition.parameters)),
        acts=tool.may_write or is_sent or not touched.isdisjoint(ACTING_READS),
        leaves=effects is None
        or is_sent
        or not _LEAVING.isdisjoint(effects)
        or "net.write" in touched
        or any(held.kind in _NET for held in definition.capabilities),
        gives_content=_gives_content(definition),
        shows_text=tool.is_built_in and tool.name == READ_TEXT,
        answers_schema=tool.is_built_in and tool.name == ASK_READER,
    )


def _gives_content(definition: ToolDefinition) -> bool:
    said = definition.metadata.get("mcp")
    return isinstance(said, Mapping) and bool(said.get("content"))


def _choices(definition: ToolDefinition, roles: Mapping[str, Role]) -> Iterator[tuple[str, frozenset[Any]]]:
    """Enumerated values and defaults: a model that nobody misled may choose what the definition offers.

    Not where something goes or what gives access: an imported definition could name its own address.
    """
    for name, schema in definition.properties.items():
        if roles[name] not in (Role.DESTINATION, Role.CREDENTIAL):
            named = frozenset(_offered(definition.parameters, schema))
            if named:
                yield name, named


def _offered(root: Mapping[str, Any], schema: Any) -> Iterator[str | int | float]:
    for part in alternatives(root, schema):
        default = part.get("default")
        listed = [*part.get("enum", ()), part.get("const")]
        listed += default if isinstance(default, list) else [default]
        yield from (one for one in listed if isinstance(one, (str, int, float)))


def _names(schema: Mapping[str, Any]) -> Iterator[str]:
    for part in objects_in(schema):
        properties = part.get("properties")
        if isinstance(properties, dict):
            yield from properties


def _words(output_schema: Mapping[str, Any] | None) -> Iterator[str]:
    """Names and enumerated values of the output schema: the definition chose them."""
    if output_schema is None:
        return
    yield from _names(output_schema)
    for part in objects_in(output_schema):
        listed = part.get("enum")
        for one in (*(listed if isinstance(listed, list) else ()), part.get("const")):
            if isinstance(one, str) and len(one) <= WORD_CHARS:
                yield one
