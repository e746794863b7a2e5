"""Swagger 2.0 is read as the OpenAPI 3.0 that says the same."""

import json
from typing import Any

from tests.sources.openapi.documents import imported
from toolkeep import ToolDefinition
from toolkeep.sources.openapi.document import read_document
from toolkeep.sources.openapi.operation_import import Import, server_urls

DOCUMENT: dict[str, Any] = {
    "swagger": "2.0",
    "info": {"title": "Pets", "version": "1"},
    "host": "pets.example",
    "basePath": "/v1/",
    "schemes": ["http", "https"],
    "consumes": ["application/json"],
    "produces": ["application/json"],
    "securityDefinitions": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}, "who": {"type": "basic"}},
    "parameters": {
        "page": {"name": "page", "in": "query", "type": "integer", "minimum": 1},
        "pet": {"name": "pet", "in": "body", "required": True, "schema": {"$ref": "#/definitions/Pet"}},
    },
    "definitions": {
        "Pet": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string", "x-nullable": True},
                "default": {"$ref": "#/definitions/Pet"},
            },
        }
    },
    "paths": {
        "/pets": {
            "parameters": [{"$ref": "#/parameters/page"}],
            "get": {
                "operationId": "listPets",
                "parameters": [
                    {"name": "tags", "in": "query", "type": "array", "items": {"type": "string"}, "collectionFormat": "pipes"},
                    {"name": "ids", "in": "query", "type": "array", "items": {"type": "integer"}},
                ],
                "responses": {"200": {"description": "", "schema": {"type": "array", "items": {"$ref": "#/definitions/Pet"}}}},
                "security": [{"key": []}],
            },
            "post": {"operationId": "addPet", "parameters": [{"$ref": "#/parameters/pet"}], "responses": {}},
        },
        "/pets/{id}/photo": {
            "post": {
                "operationId": "addPhoto",
                "parameters": [
                    {"name": "id", "in": "path", "required": True, "type": "string"},
                    {"name": "photo", "in": "formData", "required": True, "type": "file"},
                    {"name": "title", "in": "formData", "type": "string"},
                ],
                "responses": {},
            },
            "get": {
                "operationId": "tabs",
                "parameters": [
                    {"name": "id", "in": "path", "required": True, "type": "string"},
                    {"name": "a", "in": "query", "type": "array", "items": {}, "collectionFormat": "tsv"},
                ],
                "responses": {},
            },
        },
    },
}  # fmt: skip


def by_name() -> dict[str, Import]:
    document = read_document(json.dumps(DOCUMENT).encode(), "pets.json")
    assert server_urls(document) == ["https://pets.example/v1"]
    return {made.original: made for made in imported(document, url="https://pets.example/v1")}


def definition(made: Import) -> ToolDefinition:
    assert made.offer is not None, made.reason
    assert isinstance(made.offer.tool, ToolDefinition)
    return made.offer.tool


def test_parameters_bodies_forms_and_answers_are_those_of_the_document() -> None:
    made = by_name()
    listed = definition(made["listPets"])
    assert [*listed.properties] == ["tags", "ids", "page"]
    assert (listed.properties["page"], made["listPets"].secrets) == (
        {"type": "integer", "minimum": 1},
        ("key",),
    )
    target = made["listPets"].offer.runner.target  # type: ignore[union-attr]  # it is there
    assert [(one["style"], one["explode"]) for one in target["arguments"]] == [
        ("pipeDelimited", False), ("form", False), ("form", True)
    ]  # fmt: skip
    pet = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": ["string", "null"]}, "default": {"$ref": "#/$defs/Pet"}},
    }
    assert listed.output_schema == {"type": "array", "items": {"$ref": "#/$defs/Pet"}, "$defs": {"Pet": pet}}
    added = definition(made["addPet"])
    assert (added.parameters["required"], added.parameters["$defs"]) == (["body"], {"Pet": pet})
    photo = definition(made["addPhoto"])
    body = made["addPhoto"].offer.runner.target["body"]  # type: ignore[union-attr]  # it is there
    assert body["content_type"] == "multipart/form-data"
    assert body["parts"]["photo"]["kind"] == "file"
    assert photo.properties["body"]["required"] == ["photo"]


def test_what_has_no_counterpart_is_refused_by_name() -> None:
    assert "in the style" in by_name()["tabs"].reason
