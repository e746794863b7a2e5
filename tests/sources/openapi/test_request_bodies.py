"""What a model is asked for where an operation takes a form or a file, and what is given back as bytes."""

from typing import Any

import pytest

from tests.sources.openapi.documents import described, one, operation
from toolkeep import Keep, ToolDefinition
from toolkeep.definitions.vocabulary import ResultType
from toolkeep.network.http_endpoint import Endpoint
from toolkeep.sources.openapi.request_bodies import _FILE as FILE

BINARY = {"type": "string", "format": "binary"}
TEXT = {"type": "string"}


def taking(content: Any, **document: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schema of the body, and how it is sent."""
    made = one(described({"/x": {"post": operation(requestBody={"content": content})}}, **document))
    assert made.offer is not None, made.reason
    assert isinstance(made.offer.tool, ToolDefinition)
    Endpoint.read(made.offer.runner.target)
    Keep().register(made.offer)
    body = dict(made.offer.runner.target["body"])
    shown: Any = made.offer.tool.properties["body"]
    return shown, body


def form(schema: Any, **media: Any) -> dict[str, Any]:
    return {"multipart/form-data": {"schema": schema, **media}}


@pytest.mark.parametrize(
    ("field", "shown", "part"),
    [
        (BINARY, FILE, {"kind": "file", "content_type": "application/octet-stream"}),
        ({**BINARY, "description": "A cover."}, {**FILE, "description": "A cover."}, {"kind": "file", "content_type": "application/octet-stream"}),
        ({"type": "string", "contentMediaType": "image/png"}, FILE, {"kind": "file", "content_type": "image/png"}),
        ({"type": ["string", "null"], "format": "binary"}, FILE, {"kind": "file", "content_type": "application/octet-stream"}),
        ({"anyOf": [BINARY, {"type": "null"}]}, FILE, {"kind": "file", "content_type": "application/octet-stream"}),
        ({"type": "array", "items": BINARY, "maxItems": 3}, {"type": "array", "items": FILE, "maxItems": 3}, {"kind": "file", "content_type": "application/octet-stream"}),
        ({"$ref": "#/components/schemas/File"}, FILE, {"kind": "file", "content_type": "application/octet-stream"}),
        (TEXT, TEXT, None),
        ({"type": "string", "contentEncoding": "base64", "contentMediaType": "image/png"}, {"type": "string", "contentEncoding": "base64", "contentMediaType": "image/png"}, None),
        ({"type": "string", "contentMediaType": "text/html"}, {"type": "string", "contentMediaType": "text/html"}, None),
    ],
)  # fmt: skip
def test_a_file_is_asked_for_as_a_model_can_give_it(field: Any, shown: Any, part: Any) -> None:
    components = {"schemas": {"File": BINARY}}
    schema, sent = taking(
        form({"type": "object", "properties": {"f": field, "a": TEXT}}), components=components
    )
    assert schema["properties"] == {"f": shown, "a": TEXT}
    assert sent["content_type"] == "multipart/form-data"
    assert sent.get("parts", {}).get("f") == part


def test_a_part_that_is_sent_otherwise_is_another_request() -> None:
    def sent(encoding: Any) -> Any:
        body = {"content": form({"properties": {"f": BINARY}}, encoding=encoding)}
        made = one(described({"/x": {"post": operation(requestBody=body)}}))
        assert made.offer is not None
        asked: Any = made.offer.tool.metadata["request"]  # type: ignore[union-attr]
        return asked["sent"]

    assert sent({}) == {"body": "body multipart/form-data", "body/f": "file application/octet-stream"}
    assert sent({"f": {"contentType": "image/png"}})["body/f"] == "file image/png"


def test_3_0_and_references_and_composed_forms_are_put_together() -> None:
    schemas = {
        "Base": {"type": "object", "required": ["a"], "properties": {"a": TEXT, "id": {"type": "integer", "readOnly": True}}},
        "Upload": {"allOf": [{"$ref": "#/components/schemas/Base"}, {"required": ["f"], "properties": {"f": BINARY}}]},
    }  # fmt: skip
    schema, _ = taking(
        form({"$ref": "#/components/schemas/Upload"}), version="3.0.3", components={"schemas": schemas}
    )
    assert schema["properties"] == {"a": TEXT, "f": FILE}
    assert schema["required"] == ["a", "f"]


def test_encodings_say_of_which_type_a_part_is() -> None:
    properties = {"f": BINARY, "g": BINARY, "j": {"type": "array"}, "t": TEXT, "n": {"type": "integer"}}
    encoding = {"f": {"contentType": "image/*, image/png, image/jpeg"}, "g": {"contentType": "*/*"}, "j": {"contentType": "application/json"}, "t": {"contentType": "text/csv; charset=utf-8"}, "gone": {}}  # fmt: skip
    _, sent = taking(form({"properties": properties}, encoding=encoding))
    assert sent["parts"] == {
        "f": {"kind": "file", "content_type": "image/png"}, "g": {"kind": "file", "content_type": "application/octet-stream"},
        "j": {"kind": "json", "content_type": "application/json", "whole": True}, "t": {"kind": "text", "content_type": "text/csv"},
    }  # fmt: skip


@pytest.mark.parametrize("schema", [{}, {"type": "object"}, {"type": "object", "additionalProperties": TEXT}])
def test_a_form_without_described_fields_is_taken_as_it_is(schema: Any) -> None:
    assert taking(form(schema))[1] == {
        "argument": "body", "content_type": "multipart/form-data", "required": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("content", "sent"),
    [
        ({"multipart/form-data": {}, "application/json": {}}, "application/json"),
        ({"multipart/form-data": {}, "application/x-www-form-urlencoded": {}}, "application/x-www-form-urlencoded"),
        ({"application/x-www-form-urlencoded": {"schema": {"properties": {"f": BINARY}}}, "multipart/form-data": {"schema": {"properties": {"f": BINARY}}}}, "multipart/form-data"),
        ({"text/csv": {"schema": TEXT}}, "text/csv"), ({"text/plain; charset=utf-8": {}}, "text/plain"),
        ({"application/octet-stream": {"schema": BINARY}}, "application/octet-stream"), ({"image/png": {}}, "image/png"),
        ({"application/xml": {}, "application/pdf": {}}, "application/pdf"), ({"application/vnd.api+json": {}}, "application/vnd.api+json"),
    ],
)  # fmt: skip
def test_of_several_media_types_the_one_that_says_most_is_sent(content: Any, sent: str) -> None:
    assert taking(content)[1]["content_type"] == sent


def test_a_form_may_have_alternatives_where_it_carries_no_files() -> None:
    schema = {
        "anyOf": [
            {"type": "object", "properties": {"a": TEXT}},
            {"type": "object", "properties": {"b": TEXT}},
        ]
    }
    assert taking({"application/x-www-form-urlencoded": {"schema": schema}})[0] == schema


def test_fields_of_a_form_are_written_as_their_encoding_says() -> None:
    encoding = {
        "a": {"style": "pipeDelimited"}, "b": {"explode": False}, "c": {"allowReserved": True}, "d": {"contentType": "application/json"}, "e": {},
        "f": {"contentType": "text/plain"},
    }  # fmt: skip
    _, sent = taking({"application/x-www-form-urlencoded": {"schema": {}, "encoding": encoding}})
    assert sent["fields"] == {
        "a": {"in": "query", "name": "a", "style": "pipeDelimited", "explode": False},
        "b": {"in": "query", "name": "b", "style": "form", "explode": False},
        "c": {"in": "query", "name": "c", "style": "form", "explode": True, "reserved": True},
        "d": {"in": "query", "name": "d", "style": "json", "explode": False},
    }


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ({"image/png": {}}, ResultType.BINARY), ({"application/pdf": {}, "application/zip": {}}, ResultType.BINARY), ({"application/octet-stream": {"schema": BINARY}}, ResultType.BINARY),
        ({"image/png": {}, "application/json": {}}, None), ({"text/csv": {}}, None), ({"application/x-ndjson": {}}, None), ({"image/svg+xml": {}}, None), ({}, None),
        ({"application/x-www-form-urlencoded": {}}, None), ({"multipart/form-data": {}}, None), ({"*/*": {}}, None),
    ],
)  # fmt: skip
def test_bytes_are_given_where_the_document_promises_nothing_else(
    content: Any, kind: ResultType | None
) -> None:
    made = one(described({"/x": {"get": operation(responses={"200": {"content": content}})}}))
    assert made.offer is not None
    assert made.offer.tool.result_type is kind  # type: ignore[union-attr]
