"""Forms that ask for a secret are put to nobody, and those that only sound alike are."""

from typing import Any

import pytest

from toolkeep.mcp_client.elicitation import wants_secret
from toolkeep.mcp_client.elicitation_form import read_form

pytestmark = pytest.mark.spec("MCP-2")

TEXT = {"type": "string"}


def wants(message: str, **fields: Any) -> bool:
    return wants_secret(message, read_form({"type": "object", "properties": fields}).schema)


@pytest.mark.parametrize(
    ("message", "name", "field"),
    [
        ("", "password", TEXT),
        ("", "userPassword", TEXT),
        ("", "API_KEY", TEXT),
        ("", "apikey", TEXT),
        ("", "github-token", TEXT),
        ("", "pin", {"type": "integer"}),
        ("", "ｐａｓｓｗｏｒｄ", TEXT),
        ("", "x", {**TEXT, "title": "One-time code"}),
        ("", "x", {**TEXT, "description": "The private key of the server."}),
        ("Enter your password to go on.", "answer", TEXT),
        ("Your\nAPI\tkey?", "answer", TEXT),
    ],
)
def test_a_place_for_a_secret_is_found(message: str, name: str, field: dict[str, Any]) -> None:
    assert wants(message, **{name: field})


@pytest.mark.parametrize(
    ("message", "name", "field"),
    [
        ("Which repository?", "name", TEXT),
        ("Describe the token bucket.", "words", {**TEXT, "description": "How many tokens?"}),
        ("", "max_tokens", {"type": "integer"}),
        ("", "spinning", TEXT),
        ("Your password has expired. Send a mail?", "send", {"type": "boolean"}),
        ("Reset the password?", "how", {**TEXT, "enum": ["mail", "no"]}),
        ("", "secret", {"type": "boolean"}),
    ],
)
def test_what_holds_no_secret_is_none(message: str, name: str, field: dict[str, Any]) -> None:
    assert not wants(message, **{name: field})
