"""Whole documents, ours, each full of what 3.0 and 3.1 allow: every operation becomes a tool or says why not."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.sources.openapi.documents import imported
from toolkeep import Keep, ToolDefinition
from toolkeep.errors import FileUnreadable
from toolkeep.limits import DEFINITION_FILE_BYTES
from toolkeep.network.http_endpoint import Endpoint
from toolkeep.registry.admit import check_definition
from toolkeep.sources.openapi.document import Document, read_document
from toolkeep.sources.openapi.operation_import import Import, server_urls, wrong_with_url

FOLDER = Path(__file__).parent / "corpus"
EXPECTED: dict[str, dict[str, str]] = json.loads((FOLDER / "expected.json").read_text())
"""Of each document, what becomes of each operation: its arguments, or a part of the reason."""


def load(name: str) -> Document:
    path = FOLDER / name
    return read_document(path.read_bytes(), str(path))


def outcome(made: Import) -> str:
    """The arguments of the tool that it becomes, in a line; or why there is none."""
    if made.offer is None:
        return f"refused: {made.reason}"
    assert isinstance(made.offer.tool, ToolDefinition)
    Endpoint.read(made.offer.runner.target)
    problems, _ = check_definition(made.offer.tool)
    if problems:
        return f"refused: {problems[0].message}"
    needed: Any = made.offer.tool.parameters.get("required") or ()
    named = [f"{name}{'' if name in needed else '?'}" for name in made.offer.tool.properties]
    return ", ".join(named)


def test_every_document_of_the_folder_is_expected() -> None:
    assert {path.name for path in FOLDER.iterdir()} - {"expected.json"} == EXPECTED.keys()


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_every_operation_imports_or_says_why_not(name: str) -> None:
    assert {made.operation: outcome(made) for made in imported(load(name))} == EXPECTED[name]


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_whatever_imports_is_taken_by_a_keep(name: str) -> None:
    keep = Keep()
    offers = [made.offer for made in imported(load(name)) if made.offer and "refused" not in outcome(made)]
    keep.register(*offers)
    assert len(keep.tools()) == sum(not what.startswith("refused") for what in EXPECTED[name].values())


def parameters(name: str, wanted: str) -> Any:
    made = next(made for made in imported(load(name)) if made.original == wanted)
    assert made.offer is not None
    return made.offer.tool.parameters  # type: ignore[union-attr]


def test_nullable_of_3_0_stays_null_wherever_it_stands() -> None:
    asked = parameters("quirks-3.0.json", "makePet")
    body, pet = asked["properties"]["body"], asked["$defs"]["Pet"]
    assert body == {"$ref": "#/$defs/Pet"}
    assert pet["properties"]["owner"] == {"anyOf": [{"allOf": [{"$ref": "#/$defs/Owner"}]}, {"type": "null"}]}
    assert pet["properties"]["mood"]["enum"] == ["calm", "wild", None]
    assert "id" not in pet["properties"]


def test_beside_a_reference_3_0_takes_nothing_and_3_1_everything() -> None:
    old = parameters("quirks-3.0.json", "listPets")["properties"]
    new = parameters("quirks-3.1.json", "listThings")["properties"]
    assert old["after"] == {"$ref": "#/$defs/Cursor"}
    assert new["after"] == {"$ref": "#/$defs/Cursor", "minLength": 4, "description": "Where to go on."}


def test_callbacks_links_and_webhooks_are_nothing_that_can_be_asked() -> None:
    operations = [made.operation for made in imported(load("quirks-3.1.json"))]
    assert not any("callback" in one.lower() or "hook" in one.lower() for one in operations)


def test_a_server_with_variables_stands_at_their_defaults() -> None:
    urls = server_urls(load("quirks-3.1.json"))
    assert urls == ["https://eu.things.example/v2", "https://{tenant}.things.example/v2", "/relative"]
    assert [wrong_with_url(url) is None for url in urls] == [True, False, False]


def test_ways_to_authenticate_are_all_of_one_or_the_first_of_several() -> None:
    made = {one.original: one for one in imported(load("security.yml"))}
    secrets = {name: one.secrets for name, one in made.items() if one.offer}
    assert secrets == {
        "both": ("key_header", "key_query"), "either": ("basic",), "cookie": ("key_cookie",), "open": (), "optional": (), "token": ("oauth",),
        "discovered": ("oidc",), "spoken_second": ("bearer",), "inherited": ("bearer",),
    }  # fmt: skip
    headers = {name: dict(one.offer.runner.target["headers"]) for name, one in made.items() if one.offer}
    assert headers["cookie"] == {"Cookie": "session={secret:key_cookie}"}
    assert headers["either"] == {"Authorization": "Basic {basic:basic}"}
    chosen = {
        one.original: one.secrets for one in imported(load("security.yml"), secrets=frozenset({"bearer"}))
    }
    assert chosen["either"] == ("bearer",)


def test_an_alias_that_unfolds_without_end_is_refused() -> None:
    lines = [
        b"openapi: 3.1.0",
        b"info: {title: Bomb, version: '1'}",
        b"a0: &a0 [x, x, x, x, x, x, x, x, x, x]",
    ]
    lines += [b"a%d: &a%d [%s]" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 10)) for n in range(1, 10)]
    with pytest.raises(FileUnreadable):
        read_document(b"\n".join(lines), "bomb.yml")


def test_an_alias_that_is_used_as_people_use_it_is_read() -> None:
    assert EXPECTED["anchors.yml"] == {"GET /a": "limit?, offset?", "GET /b": "limit?, offset?"}


def large(size: int) -> bytes:
    """A document of so many bytes, with operations that share a schema, and long words."""
    listed = [{"name": "a", "in": "query", "schema": {"$ref": "#/components/schemas/A"}}]
    paths = {
        f"/p{n}": {"get": {"operationId": f"op{n}", "summary": "Asks.", "parameters": listed}}
        for n in range(1000)
    }
    info = {"title": "Large", "version": "1", "description": ""}
    data = {
        "openapi": "3.0.3", "info": info, "paths": paths,
        "components": {"schemas": {"A": {"type": "string", "maxLength": 9}}},
    }  # fmt: skip
    missing = size - len(json.dumps(data))
    info["description"] = "x" * missing
    return json.dumps(data).encode()


def test_a_document_of_ten_megabytes_is_read_and_one_byte_over_the_limit_is_not() -> None:
    made = imported(read_document(large(10_000_000), "large.json"))
    assert sum(one.offer is not None for one in made) == 1000
    with pytest.raises(FileUnreadable, match="is over"):
        read_document(large(DEFINITION_FILE_BYTES + 1), "large.json")
