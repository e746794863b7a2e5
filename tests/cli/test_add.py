"""`toolkeep add openapi`: the change is shown first, and nothing answers before it is accepted."""

import json
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.cli.terminal import on_a_terminal
from tests.cli.upstreams import DOCUMENT, accept, add, added, imports
from toolkeep import open_keep


def config(project: Path) -> str:
    return (project / ".agent" / "config.yml").read_text()


def test_a_document_becomes_an_upstream_once_it_is_accepted(tmp_path: Path) -> None:
    result = add(tmp_path, DOCUMENT, "--yes")
    assert result.exit_code == 0, result.output
    assert "  + GET /books/{id}: getBook" in result.stdout
    assert "  - HEAD /books: has the method HEAD" in result.stdout
    assert "+upstreams:" in result.stdout
    assert config(tmp_path) == (
        "upstreams:\n  book_shop:\n"
        '    openapi: "book_shop.openapi.json"\n    url: "https://shop.example/v1"\n'
        '    secrets:\n      "key": {env: "BOOK_SHOP_KEY"}\n'
    )
    assert imports(tmp_path) == {}
    shown = accept(tmp_path)
    assert "upstream 'book_shop' asks https://shop.example/v1" in shown.stdout
    assert "upstream 'book_shop' is given key from env BOOK_SHOP_KEY" in shown.stdout
    assert imports(tmp_path) == {"getBook": "enabled", "listBooks": "enabled"}


def test_nothing_is_written_without_a_yes(tmp_path: Path) -> None:
    result = add(tmp_path)
    assert (result.exit_code, (tmp_path / ".agent").exists()) == (1, False)
    source = str(tmp_path / "given.json")
    on_a_terminal(["add", "openapi", source, "--project", str(tmp_path)], "n\n")
    assert not (tmp_path / ".agent").exists()
    shown = on_a_terminal(["add", "openapi", source, "--project", str(tmp_path)], "y\n")
    assert "Write this?" in shown
    assert "book_shop" in config(tmp_path)


def test_nothing_is_written_through_a_link_that_leads_out_of_the_project(tmp_path: Path) -> None:
    outside, project = tmp_path / "outside", tmp_path / "project"
    outside.mkdir()
    project.mkdir()
    (project / ".agent").symlink_to(outside)
    result = add(project, DOCUMENT, "--yes")
    assert (result.exit_code, "is reached through a symlink out of" in result.output) == (1, True)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize(
    "before",
    [
        "# mine\ntier: enterprise\n", "tier: enterprise", "upstreams:\n", "upstreams: # none yet\n\ntier: enterprise\n",
        "upstreams:\n  # first\n  other:\n    openapi: other.json\n    url: https://other.example/\n# end\n",
    ],
)  # fmt: skip
def test_comments_and_order_stay(tmp_path: Path, before: str) -> None:
    (tmp_path / ".agent").mkdir()
    (tmp_path / ".agent" / "config.yml").write_text(before)
    assert add(tmp_path, DOCUMENT, "--yes").exit_code == 0
    lines = config(tmp_path).splitlines()
    written = [line for line in before.splitlines() if line]
    assert [line for line in lines if line in written] == written
    assert "  book_shop:" in lines


@pytest.mark.parametrize(
    "before",
    ["upstreams: {other: {openapi: other.json, url: 'https://other.example/'}}\n", "upstreams:\n    other: {openapi: a, url: 'https://b.example'}\n"],
)  # fmt: skip
def test_a_file_that_cannot_be_added_to_is_left_to_a_person(tmp_path: Path, before: str) -> None:
    (tmp_path / ".agent").mkdir()
    (tmp_path / ".agent" / "config.yml").write_text(before)
    result = add(tmp_path, DOCUMENT, "--yes")
    assert (result.exit_code, config(tmp_path)) == (1, before)
    assert "by hand: " in result.stderr


def test_the_same_name_twice_is_refused(tmp_path: Path) -> None:
    assert add(tmp_path, DOCUMENT, "--yes").exit_code == 0
    result = add(tmp_path, DOCUMENT, "--yes")
    assert "ACODE-TSR-076" in result.stderr
    assert add(tmp_path, DOCUMENT, "--yes", "--name", "again").exit_code == 0


@pytest.mark.parametrize(
    ("servers", "words"),
    [
        ([], "it names these servers: none"),
        ([{"url": "https://a.example"}, {"url": "https://b.example"}], "https://a.example, https://b.example"),
        ([{"url": "https://user:pass@a.example"}], "cannot be used"), ([{"url": "/v1"}], "cannot be used"),
        ([{"url": "https://{x}.example"}], "a variable"),
    ],
)  # fmt: skip
def test_a_person_chooses_where_calls_go(tmp_path: Path, servers: object, words: str) -> None:
    document = {**DOCUMENT, "servers": servers}
    result = add(tmp_path, document, "--yes")
    assert (result.exit_code, words in result.stderr) == (1, True)
    assert add(tmp_path, document, "--yes", "--url", "https://c.example/v2").exit_code == 0
    assert "https://c.example/v2" in config(tmp_path)


@pytest.mark.parametrize(
    "document",
    [[], {"swagger": "2.0"}, {**DOCUMENT, "paths": {}}, {**DOCUMENT, "paths": {"/x": {"head": {}}}}],
)
def test_what_gives_no_tool_is_refused(tmp_path: Path, document: object) -> None:
    result = add(tmp_path, document, "--yes")
    assert (result.exit_code, (tmp_path / ".agent").exists()) == (1, False)


def test_json_says_what_became_of_each_operation(tmp_path: Path) -> None:
    data = json.loads(add(tmp_path, DOCUMENT, "--yes", "--json").stdout)
    assert (data["upstream"], data["tools"]) == ("book_shop", ["getBook", "listBooks"])
    assert list(data["refused"]) == ["HEAD /books"]


def test_a_document_that_changes_after_acceptance_does_not_count(tmp_path: Path) -> None:
    add(tmp_path, DOCUMENT, "--yes")
    accept(tmp_path)
    evil = {**DOCUMENT, "security": [], "info": {"title": "Evil", "version": "1"}}
    (tmp_path / ".agent" / "book_shop.openapi.json").write_text(json.dumps(evil))
    assert imports(tmp_path) == {}
    assert open_keep(project=tmp_path).start_up.held_back


@pytest.mark.spec("SBX-4")
def test_a_typed_loopback_address_is_fetched_and_a_name_that_leads_there_is_not(tmp_path: Path) -> None:
    from tests.cli.upstreams import toolkeep

    (tmp_path / "shop.json").write_text(json.dumps(DOCUMENT))
    serve = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        fetched = toolkeep(tmp_path, "add", "openapi", f"http://127.0.0.1:{port}/shop.json", "--yes")
        led = toolkeep(tmp_path, "add", "openapi", f"http://localhost:{port}/shop.json", "--yes")
        server.shutdown()
    assert fetched.exit_code == 0, fetched.stderr
    assert (led.exit_code, "resolves to an address that is not public" in led.stderr) == (1, True)


@pytest.mark.parametrize(
    ("server", "next_step"),
    [
        ("http://127.0.0.1:9/mcp", "its address and port, such as http://127.0.0.1:8080/mcp"),
        ("ftp://shop.example/mcp", "name an installed program, or an address that begins with https://"),
        ("no-such-program", "name an installed program, or an address that begins with https://"),
        ("server.py", "write ./server.py for the file of the project"),
        ("python3 server.py", "write ./server.py for the file of the project"),
    ],
)
def test_a_server_that_cannot_be_had_is_refused_with_what_to_do(
    tmp_path: Path, server: str, next_step: str
) -> None:
    from tests.cli.upstreams import toolkeep

    (tmp_path / "server.py").write_text("")
    result = toolkeep(tmp_path, "add", "mcp", "shelf", *server.split())
    assert (result.exit_code, result.stderr.startswith("✗ ACODE-TSR-076: ")) == (1, True)
    assert f"{server}: " in result.stderr
    assert result.stderr.endswith(f"{next_step}\n")


@pytest.mark.spec("MCP-2", "REG-3")
def test_an_upstream_takes_no_name_of_one_that_was_there_before(tmp_path: Path) -> None:
    added(tmp_path)
    before = imports(tmp_path)
    other = {**DOCUMENT, "info": {"title": "Other", "version": "1.0"}}
    assert "  + GET /books/{id}: other_getBook\n" in add(tmp_path, other, "--yes").stdout
    accept(tmp_path)
    assert imports(tmp_path) == {**before, "other_getBook": "enabled", "other_listBooks": "enabled"}
    owners = {tool.name: tool.provider for tool in open_keep(project=tmp_path).tools()}
    assert (owners["getBook"], owners["other_getBook"]) == ("upstream:book_shop", "upstream:other")


@pytest.mark.spec("SBX-6")
def test_a_server_that_is_looked_at_writes_no_folder_where_a_configured_file_could_be_made(
    tmp_path: Path,
) -> None:
    from tests.cli.upstreams import toolkeep

    (Path.home() / ".agent").mkdir()
    (Path.home() / ".agent" / "config.yml").write_text(
        "upstreams:\n  shop: {openapi: shop.json, url: https://shop.example,"
        f" secrets: {{key: {{file: {tmp_path}/token}}}}}}\n"
    )
    command = ["--capability", f"fs.write:{tmp_path}", "--yes", "--", "/bin/cat"]
    result = toolkeep(tmp_path, "add", "mcp", "shelf", *command)
    assert result.exit_code == 1
    assert "'token' could be made in its folder, and is the file of secret 'key' of upstream 'shop'" in (
        result.stderr
    )


def test_a_program_is_written_so_that_it_is_found_without_the_path_of_this_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from toolkeep.cli.add_mcp import _program

    for place in ("project/.venv/bin/server", "elsewhere/bin/other"):
        path = tmp_path / place
        path.parent.mkdir(parents=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o700)
    folders = (f"{tmp_path}/project/.venv/bin", f"{tmp_path}/elsewhere/bin", "/usr/bin", "/bin")
    monkeypatch.setenv("PATH", ":".join(folders))
    words = ("server", "other", "sh", "none", "./x")
    wanted = ["./.venv/bin/server", f"{tmp_path}/elsewhere/bin/other", "sh", "none", "./x"]
    assert [_program(word, tmp_path / "project") for word in words] == wanted
