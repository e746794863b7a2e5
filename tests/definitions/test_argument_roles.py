"""Roles of arguments: how they are declared, and what may never be declared without authority."""

from typing import Annotated, Any

import pytest

from tests.definitions.examples import fields_of, made, made_elsewhere, with_properties
from tests.mcp_client.test_tool_import import imported, only
from toolkeep import Content, DefinitionError, Option, ToolDefinition, tool
from toolkeep.definitions.argument_roles import ArgumentMarks, ToolFlow
from toolkeep.definitions.vocabulary import Role
from toolkeep.registry.admit import admit

pytestmark = pytest.mark.spec("DEF-1")

TEXT: dict[str, Any] = {"type": "string", "description": "Some text."}
SEND = with_properties({"to": TEXT, "body": {**TEXT, "x-flow": "content"}}, required=["to", "body"])


def refused(properties: dict[str, Any], **keywords: Any) -> list[str]:
    with pytest.raises(DefinitionError) as caught:
        admit(made(parameters=with_properties(properties, **keywords)))
    return fields_of(caught.value.problems)


def test_code_and_data_declare_the_same() -> None:
    @tool
    def send(to: str, body: Annotated[str, Content()], retries: Annotated[int, Option()] = 1) -> None:
        """Send a message."""

    assert send.definition.roles == {"body": Role.CONTENT, "retries": Role.OPTION}
    properties = send.definition.parameters["properties"]
    assert isinstance(properties, dict)
    assert properties["body"] == {"type": "string", "x-flow": "content"}


def test_a_role_survives_json_and_is_part_of_the_hash() -> None:
    with_role = made(parameters=SEND)
    assert ToolDefinition.from_dict(with_role.to_dict()) == with_role
    properties = {"to": TEXT, "body": TEXT}
    assert with_role.hash != made(parameters=with_properties(properties, required=["to", "body"])).hash


def test_models_are_not_told_of_roles() -> None:
    assert "x-flow" not in str(made(parameters=SEND).to_openai_format())


@pytest.mark.parametrize("word", ["contents", "", 1, None, ["content"], "records"])
def test_an_unknown_role_is_refused(word: Any) -> None:
    assert refused({"body": {**TEXT, "x-flow": word}}) == ["parameters/properties/body/x-flow"]


def test_a_role_on_a_part_of_a_parameter_is_refused() -> None:
    inside = with_properties({"body": {**TEXT, "x-flow": "content"}})
    assert refused({"mail": inside}) == ["parameters/properties/mail/properties/body/x-flow"]
    either = {"anyOf": [{**TEXT, "x-flow": "content"}, {"type": "null"}]}
    assert refused({"body": either}) == ["parameters/properties/body/anyOf/0/x-flow"]


@pytest.mark.parametrize("keyword", ["x-flows", "x-flwo", "x-toches", "x-secrets"])
def test_a_near_miss_of_our_keywords_is_a_warning(keyword: str) -> None:
    (warning,) = admit(made(parameters=with_properties({"body": {**TEXT, keyword: True}}))).warnings
    assert "did you mean 'x-" in warning.fix


MARKS: dict[str, dict[str, Any]] = {
    "secret": {"x-secret": True},
    "write-only": {"writeOnly": True},
    "a password": {"format": "password"},
    "a path": {"x-touches": "fs.write"},
    "a host": {"x-touches": {"kind": "net.read", "form": "host"}},
    "a command": {"x-touches": "process.spawn"},
    "a database": {"x-touches": "db.read"},
}


@pytest.mark.parametrize("role", ["content", "option"])
@pytest.mark.parametrize("mark", MARKS.values(), ids=MARKS)
def test_a_credential_or_what_is_touched_is_never_without_authority(mark: dict[str, Any], role: str) -> None:
    assert refused({"value": {**TEXT, **mark, "x-flow": role}}) == ["parameters/properties/value/x-flow"]


MARK = {"x-touches": "fs.write"}
ELSEWHERE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "in an item": ({"type": "array", "items": {**TEXT, **MARK}}, {}),
    "in a nested property": (with_properties({"path": {**TEXT, **MARK}}), {}),
    "in a branch": ({"anyOf": [{**TEXT, **MARK}, {"type": "null"}]}, {}),
    "behind a reference": ({"$ref": "#/$defs/p"}, {"$defs": {"p": {**TEXT, **MARK}}}),
    "behind two references": (
        {"$ref": "#/$defs/p"},
        {"$defs": {"p": {"$ref": "#/$defs/q"}, "q": {**TEXT, **MARK}}},
    ),
    "beside it": (TEXT, {"allOf": [{"properties": {"value": MARK}}]}),
    "under a condition": (TEXT, {"if": {}, "then": {"properties": {"value": MARK}}}),
    "by a pattern of names": (TEXT, {"patternProperties": {"^v": {**TEXT, **MARK}}}),
    "on the whole": (TEXT, {"allOf": [MARK]}),
}


@pytest.mark.parametrize(("schema", "keywords"), ELSEWHERE.values(), ids=ELSEWHERE)
def test_a_mark_is_found_wherever_it_speaks_about_the_argument(
    schema: dict[str, Any], keywords: dict[str, Any]
) -> None:
    properties = {"value": {**schema, "description": "It.", "x-flow": "content"}, "other": TEXT}
    assert "parameters/properties/value/x-flow" in refused(properties, **keywords)


def test_a_mark_of_another_argument_is_none_of_this_one() -> None:
    properties = {"path": {**TEXT, "x-touches": "fs.write"}, "body": {**TEXT, "x-flow": "content"}}
    definition = admit(made(parameters=with_properties(properties), capabilities=["fs.write"])).definition
    marks = ArgumentMarks(definition.parameters)
    assert (marks.why_authority("body"), marks.why_authority("path")) == ("", "it touches fs.write")
    referring = with_properties(
        {"path": {"$ref": "#/$defs/p"}, "body": TEXT}, **{"$defs": {"p": {**TEXT, "x-touches": "fs.write"}}}
    )
    marks = ArgumentMarks(referring)
    assert (marks.why_authority("body"), marks.why_authority("path")) == ("", "it touches fs.write")


def test_an_upstream_cannot_declare_roles_of_its_own() -> None:
    """It would call its recipient `content`, and one yes would send to anybody."""
    hostile = with_properties({"to": {**TEXT, "x-flow": "content"}})
    assert only({"name": "send", "inputSchema": hostile}).roles == {}
    assert ToolDefinition.from_elsewhere({"name": "send", "parameters": hostile}).roles == {}


def test_a_person_declares_the_roles_of_an_import_by_pointer() -> None:
    mail = {"name": "send", "inputSchema": with_properties({"to": TEXT, "body": TEXT})}
    assert only(mail, flows={"send": ToolFlow({"/body": Role.CONTENT}, {})}).roles == {"body": Role.CONTENT}
    for pointer in ("/bodies", "body", "/body/0", ""):
        (offer,) = imported(mail, flows={"send": ToolFlow({pointer: Role.CONTENT}, {})})
        assert "names no parameter" in str(offer.tool)


def test_what_a_person_declares_of_an_import_is_checked_like_any_role() -> None:
    mail = {"name": "send", "inputSchema": with_properties({"key": {**TEXT, "format": "password"}})}
    definition = only(mail, flows={"send": ToolFlow({"/key": Role.OPTION}, {})})
    with pytest.raises(DefinitionError, match="it is secret"):
        admit(definition)
    assert made_elsewhere(parameters=SEND).roles == {
        "body": Role.CONTENT
    }  # as a pin or a store gives it back
