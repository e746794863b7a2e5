"""`upstreams` in a configuration: what is checked, and what a person is asked to accept."""

import json
from pathlib import Path

import pytest

from tests.cli.upstreams import DOCUMENT
from tests.config.projects import accept, configure, project_file
from toolkeep import open_keep
from toolkeep.definitions.vocabulary import Role
from toolkeep.errors import ConfigurationInvalid
from toolkeep.sources.openapi.document import load_document

SHOP = "upstreams:\n  shop:\n    openapi: shop.json\n    url: https://shop.example/v1\n"


@pytest.mark.parametrize(
    "text",
    [
        "upstreams: {Shop: {openapi: a, url: 'https://a.example'}}", "upstreams: {shop: {openapi: a}}", "upstreams: {shop: {url: 'https://a.example'}}",
        "upstreams: {shop: {openapi: a, url: 'ftp://a.example'}}", "upstreams: {shop: {openapi: a, url: 'https://u:p@a.example'}}",
        "upstreams: {shop: {openapi: a, url: 'https://a.example/?b'}}", "upstreams: {shop: {openapi: a, url: 'https://a.example', other: 1}}",
        "upstreams: {shop: {openapi: a, url: 'https://a.example', effects: {x: none}}}",
        "upstreams: {shop: {openapi: a, url: 'https://a.example', danger: {x: none}}}", "upstreams: {shop: {openapi: a, url: 'https://a.example', secrets: {k: plain}}}",
        "upstreams: {shop: {openapi: a, url: 'https://a.example', secrets: {k: {env: A, file: /b}}}}",
        "upstreams: {shop: {openapi: a, url: 'https://a.example', secrets: {k: {file: relative}}}}",
        "upstreams: {shop: {openapi: a, url: 'https://a.example', secrets: {k: {keyring: noname}}}}",
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(tmp_path: Path, text: str) -> None:
    configure(tmp_path, text)
    with pytest.raises(ConfigurationInvalid):
        open_keep(project=tmp_path)


def test_a_project_does_not_take_the_name_of_an_upstream_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / ".agent").mkdir(parents=True)
    (home / ".agent" / "config.yml").write_text(SHOP)
    monkeypatch.setenv("HOME", str(home))
    configure(tmp_path / "project", SHOP)
    with pytest.raises(ConfigurationInvalid, match="is already an upstream of yours"):
        open_keep(project=tmp_path / "project")


def test_what_is_accepted_is_the_content_of_the_document_too(tmp_path: Path) -> None:
    configure(tmp_path, SHOP)
    configure(tmp_path, json.dumps(DOCUMENT), name=".agent/shop.json")
    accept(tmp_path)
    before = project_file(tmp_path)
    assert before.counts
    configure(tmp_path, json.dumps({**DOCUMENT, "info": {}}), name=".agent/shop.json")
    after = project_file(tmp_path)
    assert (after.counts, after.seal == before.seal) == (False, False)


def test_a_document_that_is_swapped_after_the_file_was_read_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(tmp_path, SHOP)
    configure(tmp_path, json.dumps(DOCUMENT), name=".agent/shop.json")
    accept(tmp_path)

    def swapped(path: Path) -> object:
        configure(tmp_path, json.dumps({**DOCUMENT, "security": []}), name=".agent/shop.json")
        return load_document(path)

    monkeypatch.setattr("toolkeep.sources.openapi.provider.load_document", swapped)
    keep = open_keep(project=tmp_path)
    assert [skip.provider for skip in keep.start_up.skipped] == ["upstream:shop"]
    assert "getBook" not in keep


def test_an_unaccepted_file_reads_no_document_and_no_secret(tmp_path: Path) -> None:
    configure(tmp_path, SHOP + "    secrets: {key: {env: SHOP_KEY}}\n")
    configure(tmp_path, json.dumps(DOCUMENT), name=".agent/shop.json")
    keep = open_keep(project=tmp_path)
    assert "getBook" not in keep
    kinds = [(effect.kind, effect.what.split(" ")[0]) for effect in project_file(tmp_path).effects]
    assert kinds == [("runs", "upstream"), ("grants", "upstream")]


def test_a_person_is_shown_what_is_said_about_danger(tmp_path: Path) -> None:
    configure(tmp_path, SHOP + "    danger: {getBook: safe}\n")
    effects = [effect.what for effect in project_file(tmp_path).effects]
    assert "getBook of upstream 'shop' is called safe" in effects
    assert any("which is not there," in what for what in effects)


def test_a_role_that_a_file_gives_to_an_argument_counts_once_it_is_accepted(tmp_path: Path) -> None:
    parameter = {"name": "note", "in": "query", "schema": {"type": "string", "x-flow": "option"}}
    ask = {"operationId": "getBook", "parameters": [parameter], "responses": {"200": {"description": "-"}}}
    document = {**DOCUMENT, "paths": {"/books": {"get": ask}}}
    configure(tmp_path, json.dumps(document), name=".agent/shop.json")
    for said, roles in (("", {}), ("    flow: {getBook: {/note: content}}\n", {"note": Role.CONTENT})):
        configure(tmp_path, SHOP + said)
        effects = [effect.what for effect in project_file(tmp_path).effects]
        assert ("/note of getBook of upstream 'shop' is called content" in effects) is bool(said)
        assert "getBook" not in open_keep(project=tmp_path)
        accept(tmp_path)
        assert open_keep(project=tmp_path).get("getBook").definition.roles == roles
        (tmp_path / ".agent" / "config.yml").unlink()


def test_flow_and_effects_of_both_kinds_of_upstream_count_once_they_are_accepted(tmp_path: Path) -> None:
    answer = {"type": "object", "properties": {"id": {"type": "string"}, "text": {"type": "string"}}}
    wanted = {"type": "object", "properties": {"to": {"type": "string"}, "note": {"type": "string"}}}
    body = {"required": True, "content": {"application/json": {"schema": wanted}}}
    response = {"200": {"description": "-", "content": {"application/json": {"schema": answer}}}}
    place = {"name": "to", "in": "query", "schema": {"type": "string"}}
    send = {"operationId": "send", "parameters": [place], "requestBody": body, "responses": response}
    listed = {"name": "tell", "description": "-", "inputSchema": wanted, "outputSchema": answer}
    configure(tmp_path, json.dumps({**DOCUMENT, "paths": {"/mail": {"post": send}}}), name=".agent/shop.json")
    configure(tmp_path, json.dumps({"server": {}, "tools": [listed]}), name=".agent/up.json")
    said = "flow: {%s: {/to: destination, %s: content, result: {/id: system}}}, effects: {%s: reads}"
    shop, server = said % ("send", "/body", "send"), said % ("tell", "/note", "tell")
    configure(
        tmp_path,
        f"upstreams:\n  shop: {{openapi: shop.json, url: 'https://a.example', {shop}}}\n"
        f"  up: {{mcp: up.json, url: 'https://b.example', {server}}}\n",
    )
    effects = [effect.what for effect in project_file(tmp_path).effects]
    for tool, upstream in (("send", "shop"), ("tell", "up")):
        of = f"{tool} of upstream '{upstream}'"
        assert {f"/to of {of} is called destination", f"/id in results of {of} is labelled system",
                f"{of} only reads"} <= set(effects)  # fmt: skip
    keep = open_keep(project=tmp_path)
    assert ("send" in keep, "tell" in keep) == (False, False)
    accept(tmp_path)
    keep = open_keep(project=tmp_path)
    for name, content in (("send", "body"), ("tell", "note")):
        found = keep.get(name)
        assert found.definition.roles == {"to": Role.DESTINATION, content: Role.CONTENT}
        assert (dict(found.definition.flow), found.may_write) == ({"/id": "system"}, False)


SERVER = "mcp: a.json, url: 'https://a.example/mcp'"
CLIENT = "client_id: us, client_secret: key, issuer: 'https://b.example'"
KEY = "secrets: {key: {env: KEY}}"


@pytest.mark.spec("MCP-2")
@pytest.mark.parametrize(
    "said",
    [
        "mcp: a.json, url: 'http://a.example/mcp', oauth: {}", "mcp: a.json, command: [x], oauth: {}",
        "openapi: a.json, url: 'https://a.example', oauth: {}", f"{SERVER}, oauth: {{other: 1}}",
        f"{SERVER}, oauth: {{}}, headers: {{authorization: x}}", f"{SERVER}, oauth: {{issuer: 'http://b.example'}}",
        f"{SERVER}, {KEY}, oauth: {{client_id: us, client_secret: key}}",
        f"{SERVER}, {KEY}, oauth: {{issuer: 'https://b.example', client_secret: key}}", f"{SERVER}, oauth: {{{CLIENT}}}",
        f"{SERVER}, oauth: {{grant: client_credentials, client_id: us, issuer: 'https://b.example'}}",
        f"{SERVER}, oauth: {{grant: password}}", f"{SERVER}, protocol: '1999-01-01'",
    ],
)  # fmt: skip
def test_a_sign_in_that_could_leak_is_refused(tmp_path: Path, said: str) -> None:
    configure(tmp_path, f"upstreams: {{up: {{{said}}}}}")
    with pytest.raises(ConfigurationInvalid):
        open_keep(project=tmp_path)


@pytest.mark.parametrize(
    "said", [f"{SERVER}, oauth: {{}}", f"{SERVER}, {KEY}, oauth: {{{CLIENT}, grant: client_credentials}}"]
)
def test_a_person_accepts_that_a_server_is_shown_a_token(tmp_path: Path, said: str) -> None:
    configure(tmp_path, f"upstreams: {{up: {{{said}}}}}")
    assert "upstream 'up' is sent the token of a sign-in" in [
        effect.what for effect in project_file(tmp_path).effects
    ]
