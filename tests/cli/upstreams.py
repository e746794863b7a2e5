"""A project with an upstream, for the tests of `add`, `lock` and `accept`."""

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from toolkeep import Keep, open_keep
from toolkeep.cli.main import cli

DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Book Shop", "version": "1.0"},
    "servers": [{"url": "https://shop.example/v1"}],
    "security": [{"key": []}],
    "paths": {
        "/books/{id}": {
            "get": {
                "operationId": "getBook",
                "summary": "One book.",
                "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
                "responses": {},
            }
        },
        "/books": {"head": {"responses": {}}, "get": {"operationId": "listBooks", "summary": "All.", "responses": {}}},
    },
    "components": {"securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}}},
}  # fmt: skip


def toolkeep(project: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--project", str(project)])


def add(project: Path, document: Any = DOCUMENT, *arguments: str) -> Result:
    source = project / "given.json"
    source.write_text(json.dumps(document))
    return toolkeep(project, "add", "openapi", str(source), *arguments)


def accept(project: Path) -> Result:
    """Accept whatever is shown, by its hash."""
    shown = json.loads(toolkeep(project, "accept", "--json").stdout)
    return toolkeep(project, "accept", "--hash", shown["hash"])


def added(project: Path) -> Path:
    """The project with its upstream added and accepted."""
    assert add(project, DOCUMENT, "--yes").exit_code == 0
    assert accept(project).exit_code == 0
    return project


def change(project: Path, **fields: Any) -> None:
    """Another document in the place of the one that was accepted, and its acceptance."""
    (project / ".agent" / "book_shop.openapi.json").write_text(json.dumps({**DOCUMENT, **fields}))


def imports(project: Path) -> dict[str, str]:
    """The states of imported tools."""
    keep: Keep = open_keep(project=project)
    return {tool.name: tool.state.value for tool in keep.tools() if tool.definition.source.kind == "openapi"}
