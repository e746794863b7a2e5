"""What follows from a definition that declares no flow, by its import (FLO-2)."""

import re
from typing import Annotated, Any, Literal

import pytest

from tests.mcp_client.test_tool_import import only as mcp_tool
from tests.sources.openapi.documents import described, imported, operation
from toolkeep import Destination, tool
from toolkeep.calls import RegisteredTool
from toolkeep.definitions.argument_roles import ToolFlow
from toolkeep.definitions.capability import Capability
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.definitions.vocabulary import Role, SideEffect
from toolkeep.flow.flow_plan import Plan, make_plan
from toolkeep.flow.session_state import SessionState
from toolkeep.registry.admit import admit

pytestmark = pytest.mark.spec("FLO-2")

TEXT = {"type": "string"}
MAIL = {"type": "string", "format": "email"}
LINK = {"anyOf": [{"type": "string", "format": "uri"}, {"type": "null"}]}


def planned(definition: ToolDefinition) -> Plan:
    tool: RegisteredTool = admit(definition)
    return make_plan(tool)


def facts(plan: Plan) -> tuple[dict[str, str], bool, bool]:
    return {name: role.value for name, role in plan.roles.items()}, plan.acts, plan.leaves


def server_tool(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    wanted = {"type": "object", "properties": properties, "$defs": {"mail": MAIL}}
    return {"name": "ask", "description": "Asks.", "inputSchema": wanted, **more}


def test_roles_of_an_operation_follow_from_method_place_and_format() -> None:
    def place(name: str, where: str = "query", schema: Any = TEXT) -> dict[str, Any]:
        return {"name": name, "in": where, "required": where == "path", "schema": schema}

    body = {"content": {"application/json": {"schema": {"type": "object", "properties": {"to": MAIL}}}}}
    item = [place("id", "path"), place("page"), place("mail", schema=MAIL)]
    paths = {
        "/books/{id}": {
            "get": operation("read", parameters=item),
            "post": operation("change", parameters=item, requestBody=body),
            "delete": operation("remove", parameters=item),
        },
        "/fetch": {"get": operation("fetch", parameters=[place("link", schema=LINK)])},
    }
    made = {one.original: one for one in imported(described(paths))}
    found = {name: facts(planned(one.offer.tool)) for name, one in made.items() if one.offer}  # type: ignore[arg-type]
    assert found == {
        "read": ({"id": "target", "page": "record", "mail": "record"}, False, True),
        "change": ({"id": "target", "page": "record", "mail": "destination", "body": "record"}, True, True),
        "remove": ({"id": "destroys", "page": "record", "mail": "destination"}, True, True),
        "fetch": ({"link": "destination"}, True, True),
    }
    # By hand, the same metadata are the author's own words.
    assert made["remove"].offer is not None
    theirs = made["remove"].offer.tool
    assert isinstance(theirs, ToolDefinition)
    own = ToolDefinition(name="x", description="X.", parameters=theirs.parameters, metadata=theirs.metadata)
    assert planned(own).roles["id"] is Role.RECORD


def test_what_a_server_says_of_its_tools_only_makes_them_stricter() -> None:
    properties = {"to": {"$ref": "#/$defs/mail"}, "all": {"type": "array", "items": MAIL}, "note": TEXT}
    hints = {"readOnlyHint": True, "destructiveHint": False, "openWorldHint": False, "idempotentHint": True}
    said = server_tool(properties, annotations=hints)
    roles = {"to": "destination", "all": "destination", "note": "record"}
    assert facts(planned(mcp_tool(said))) == (roles, True, True)
    # A person says that it only reads; it still reaches what it was granted.
    reads = {"ask": SideEffect.READS}
    held = (Capability.read("net.write:up.example"),)
    as_read = dict.fromkeys(roles, "record")
    assert facts(planned(mcp_tool(said, effects=reads))) == (as_read, False, False)
    assert facts(planned(mcp_tool(said, effects=reads, capabilities=held))) == (as_read, False, True)
    # An address is contacted even by a read; a declared role comes first.
    linked = server_tool({"link": LINK})
    assert facts(planned(mcp_tool(linked, effects=reads))) == ({"link": "destination"}, True, True)
    declared = {"ask": ToolFlow({"/link": Role.TARGET}, {})}
    assert facts(planned(mcp_tool(linked, effects=reads, flows=declared)))[:2] == ({"link": "target"}, False)


def test_a_yes_to_a_destination_by_format_does_not_cover_other_arguments() -> None:
    """A server could give the format to a harmless argument, and send to another."""
    said = server_tool({"to": MAIL, "via": TEXT})
    declared = {"ask": ToolFlow({"/to": Role.DESTINATION}, {})}
    agreed, other = {"to": "bob@x.org", "via": "a"}, {"to": "bob@x.org", "via": "evil.test"}
    for definition, covers in ((mcp_tool(said), False), (mcp_tool(said, flows=declared), True)):
        plan, session = planned(definition), SessionState("ada", "s", key="s")
        session.endorse(plan, agreed)
        assert tuple(session.is_endorsed(plan, one, secret=False) for one in (agreed, other)) == (
            True,
            covers,
        )


def test_a_value_that_an_import_offers_is_no_choice_where_it_is_sent() -> None:
    """An imported definition could name its own address."""
    offered = {"enum": ["a@evil.test"]}
    plan = planned(mcp_tool(server_tool({"to": {**MAIL, **offered}, "via": {**TEXT, **offered}})))
    assert dict(plan.choices) == {"via": frozenset({"a@evil.test"})}


def test_a_model_may_choose_what_the_definition_offers() -> None:
    @tool(effects="writes", danger="low")
    def add(
        stage: Literal["won", "lost"] | None = None,
        tags: list[Literal["red", "blue"]] | None = None,
        folder: str = "inbox",
        copies: int = 1,
        to: Annotated[str, Destination()] = "all@corp.example",
    ) -> bool:
        """Add it."""
        return True

    plan, session = planned(add.definition), SessionState("ada", "s", key="s")
    offered = {"stage": "won", "tags": ["red", "blue"], "folder": "inbox", "copies": 1}
    others = {
        "stage": "gone",
        "tags": ["red", "green"],
        "folder": "spam",
        "copies": 2,
        "to": "all@corp.example",
    }
    assert {one.name for one in session.origins(plan, offered) if one.is_trusted} == offered.keys()
    assert not [one.name for one in session.origins(plan, others) if one.is_trusted]


@pytest.mark.parametrize(
    ("effects", "leaves"),
    [
        ("none", False), ("reads", False), ("writes", True), (["FsWrite"], False), (["DbRead"], False),
        (["DbWrite"], True), (["ProcessSpawn"], True), (["NetRead"], True), (["NetWrite"], True), (None, True),
    ],
)  # fmt: skip
def test_what_may_send_something_out_follows_from_the_effects(effects: Any, leaves: bool) -> None:
    # `FsWrite` needs `fs.write`
    held = (
        [re.sub("(?!^)([A-Z])", r".\1", one).lower() for one in effects] if isinstance(effects, list) else []
    )

    def act() -> bool:
        """Act."""
        return True

    stated = {} if effects is None else {"effects": effects, "danger": "low", "capabilities": held}
    assert planned(tool(**stated)(act).definition).leaves is leaves
