"""A document in several files is bundled from its own folder, and from nowhere else."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.sources.openapi.documents import imported
from toolkeep import ToolDefinition
from toolkeep.errors import FileUnreadable
from toolkeep.sources.openapi import split_documents
from toolkeep.sources.openapi.document import read_document
from toolkeep.sources.openapi.split_documents import bundle

HEAD = "openapi: 3.1.0\ninfo: {title: T, version: '1', description: {$ref: about.md}}\n"
FILES = {
    "main.yml": HEAD + "paths:\n  /pets/{id}: {get: {$ref: 'paths/pet.yml'}}\n",
    "about.md": "# All about pets",
    "paths/pet.yml": (
        "operationId: getPet\n"
        "parameters: [{$ref: '../shared/parameters.yml#/id'}]\n"
        "responses: {'200': {content: {application/json: {schema: {$ref: '../shared/a%b~c.json'}}}}}\n"
    ),
    "shared/parameters.yml": (
        "id: {name: id, in: path, required: true, schema: {$ref: '#/text'}}\ntext: {type: string}\n"
    ),
    "shared/a%b~c.json": '{"type": "object", "properties": {"friend": {"$ref": "#"}}}',
}


def written(folder: Path, **changed: str) -> Path:
    for name, text in {**FILES, **changed}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "main.yml"


def bundled(main: Path) -> bytes:
    return bundle(main, main.read_bytes())


def test_files_beside_it_come_along(tmp_path: Path) -> None:
    raw = bundled(written(tmp_path))
    (made,) = imported(read_document(raw, "main.json"))
    assert made.offer is not None, made.reason
    tool: Any = made.offer.tool
    assert isinstance(tool, ToolDefinition)
    assert (tool.name, tool.parameters["required"]) == ("getPet", ["id"])
    assert tool.parameters["$defs"] == {"text": {"type": "string"}}
    assert tool.output_schema is not None
    (name,) = tool.output_schema["$defs"]
    friend = {"type": "object", "properties": {"friend": {"$ref": f"#/$defs/{name}"}}}
    assert tool.output_schema["$defs"] == {name: friend}
    assert b"All about pets" in raw
    whole = json.dumps({"openapi": "3.1.0", "paths": {}}).encode()
    assert bundle(tmp_path / "whole.json", whole) is whole


@pytest.mark.parametrize("where", ["../secret.yml", "/etc/hostname", "link.yml", "paths/../../secret.yml"])
def test_nothing_outside_its_folder_is_read(tmp_path: Path, where: str) -> None:
    (tmp_path / "secret.yml").write_text("secret: 1")
    folder = tmp_path / "api"
    main = written(folder, **{"main.yml": HEAD + f"paths:\n  /pets: {{$ref: '{where}'}}\n"})
    (folder / "link.yml").symlink_to(tmp_path / "secret.yml")
    with pytest.raises(FileUnreadable, match="is outside the folder of the document"):
        bundled(main)


def test_nothing_is_fetched(tmp_path: Path) -> None:
    main = written(tmp_path, **{"main.yml": HEAD + "paths:\n  /a: {$ref: 'https://evil.example/x.yml'}\n"})
    made = imported(read_document(bundled(main), "main.json"))
    assert "which is not in the document; nothing is fetched" in made[0].reason


def test_files_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main = written(tmp_path)
    monkeypatch.setattr(split_documents, "_MOST_FILES", 3)
    with pytest.raises(FileUnreadable, match="more than 3 files"):
        bundled(main)
    monkeypatch.setattr(split_documents, "_MOST_FILES", 4)
    monkeypatch.setattr(split_documents, "DEFINITION_FILE_BYTES", len(FILES["main.yml"]) + 250)
    with pytest.raises(FileUnreadable, match="makes the document larger"):
        bundled(main)
