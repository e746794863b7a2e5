"""A planted secret is searched for in every output and log: as it is, escaped, encoded and cut (VAL-6)."""

import base64
import json
import logging
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from click.testing import CliRunner

from toolkeep import ArgumentsRefused, CheckedCall, Keep, Refusal, Secret, ToolDefinition, open_keep, tool
from toolkeep.cli.main import cli

pytestmark = pytest.mark.spec("VAL-6")

SECRET = 'hunter2-"Ωmega"-S3CRET-0123456789'
PIN = 924681357


def traces(secret: str) -> Iterator[str]:
    """Every form in which a secret could come out."""
    raw = secret.encode()
    yield secret
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield repr(secret)[1:-1]
    yield raw.hex()
    yield base64.b64encode(raw).decode()[:-2]
    yield base64.urlsafe_b64encode(raw).decode()[:-2]
    yield urllib.parse.quote(secret)
    yield secret[:8]
    yield secret[-8:]


def leaks(text: str) -> list[str]:
    found = [trace for trace in traces(SECRET) if trace in text]
    return found + [number for number in (str(PIN), str(PIN)[:6]) if number in text]


SECRETS = {
    "by_mark": {"type": "string", "x-secret": True, "maxLength": 5},
    "by_write_only": {"type": "integer", "writeOnly": True},
    "by_format": {
        "type": "string",
        "format": "password",
        "pattern": "^S3CRET",
        "enum": ["S3CRET-option"],
    },
    "inside": {"type": "object", "properties": {"token": {"type": "integer", "x-secret": True}}},
    "referred": {"$ref": "#/$defs/key"},
    "keyring": {"type": "object", "x-secret": True, "additionalProperties": {"type": "integer"}},
    "login": {"type": "object", "x-secret": True, "properties": {"user": {"type": "integer"}}},
    "plain": {"type": "integer"},
}
DEFINITION = {
    "name": "login",
    "description": "Log in.",
    "parameters": {
        "type": "object",
        "properties": SECRETS,
        "$defs": {"key": {"anyOf": [{"type": "integer", "x-secret": True}, {"type": "null"}]}},
        "required": ["plain"],
    },
}

CALLS: list[Any] = [
    {"by_mark": SECRET},
    {"by_mark": [SECRET]},
    {"by_mark": {SECRET: 1}},
    {"by_write_only": SECRET},
    {"by_write_only": str(PIN)},
    {"by_write_only": PIN + 0.5},
    {"by_format": SECRET},
    {"by_format": PIN},
    {"inside": SECRET},
    {"inside": {"token": SECRET}},
    {"inside": {"token": str(PIN)}},
    {"inside": [SECRET]},
    {"referred": SECRET},
    {"referred": str(PIN)},
    {"by_marks": SECRET},
    {"keyring": {SECRET: "x"}},
    {"keyring": {SECRET: {SECRET: 1}}},
    {"login": {SECRET: 1}, "plain": 1},
    {"login": {"user": 1, f"{SECRET}": {}, "usr": "x"}},
    {"token": SECRET, "plain": 1},
    {"by_write_only": str(PIN), "plain": 1},
    {"inside": {"token": str(PIN)}, "plain": 1},
    {"referred": str(PIN), "plain": 1},
    json.dumps({"by_mark": SECRET})[:-1],
    json.dumps({"by_mark": SECRET}) + "x",
    '{"by_mark": "' + SECRET.replace('"', "") + '", "by_mark": 1}',
    json.dumps([SECRET]),
    json.dumps(SECRET),
]


@pytest.fixture
def keep() -> Keep:
    keep = open_keep()
    keep.register(DEFINITION)
    return keep


@pytest.mark.parametrize("call", CALLS, ids=[str(i) for i in range(len(CALLS))])
def test_a_secret_shows_up_in_no_refusal_and_no_log(
    keep: Keep, call: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="toolkeep")
    arguments = call if isinstance(call, str) else json.dumps(call)
    for sent in (arguments, arguments, call):
        check = keep.try_validate_arguments("login", sent)
        assert isinstance(check, Refusal)
        shown = f"{check.text}{json.dumps(check.to_dict())}{json.dumps(check.to_dict(), ensure_ascii=False)}{check!r}"
        assert leaks(shown) == []
        with pytest.raises(ArgumentsRefused) as caught:
            keep.validate_arguments("login", sent)
        assert leaks(f"{caught.value}{caught.value!r}") == []
    logged = "".join(f"{record.getMessage()}{vars(record)}" for record in caplog.records)
    assert "validation failed" in logged
    assert leaks(logged) == []


@pytest.mark.parametrize("call", CALLS, ids=[str(i) for i in range(len(CALLS))])
@pytest.mark.parametrize("options", [[], ["--json"], ["--log-level", "debug"]])
def test_a_secret_shows_up_in_no_output_of_the_command(tmp_path: Path, call: Any, options: list[str]) -> None:
    path = tmp_path / "login.json"
    path.write_text(json.dumps(DEFINITION))
    arguments = call if isinstance(call, str) else json.dumps(call)
    result = CliRunner().invoke(cli, ["validate", "login", "-f", str(path), *options], input=arguments)
    assert result.exit_code == 1
    assert leaks(result.output) == []


def test_a_call_that_passes_is_shown_without_its_secrets(tmp_path: Path) -> None:
    definition = {
        **DEFINITION,
        "parameters": {"type": "object", "properties": {"key": {"type": "string", "x-secret": True}}},
    }
    path = tmp_path / "login.json"
    path.write_text(json.dumps(definition))
    for options in ([], ["--json"]):
        result = CliRunner().invoke(
            cli, ["validate", "login", "-f", str(path), *options], input=json.dumps({"key": SECRET})
        )
        assert result.exit_code == 0
        assert leaks(result.output) == []
        assert "***" in result.output


def test_what_describes_a_secret_is_shown_to_nobody(keep: Keep, tmp_path: Path) -> None:
    """Pattern, enum and limits of a secret, in errors, in `show` and in exports."""
    definition = keep.get("login").definition
    path = tmp_path / "login.json"
    path.write_text(json.dumps(DEFINITION))
    shown = [
        CliRunner().invoke(cli, ["show", "login", "-f", str(path)]).output,
        CliRunner().invoke(cli, ["show", "login", "-f", str(path), "--json"]).output,
        json.dumps(
            [definition.to_claude_format(), definition.to_openai_format(), definition.to_gemini_format()]
        ),
        json.dumps(keep.try_validate_arguments("login", {"by_format": "x", "plain": 1}).to_dict()),
    ]
    for text in shown:
        assert "by_format" in text
        assert "S3CRET" not in text


def test_a_secret_marked_in_code_is_a_secret() -> None:
    @tool
    def login(password: Annotated[str, Secret()], pin: int) -> str:
        """Log in."""
        return password

    keep = open_keep()
    keep.register(login)
    check = keep.try_validate_arguments("login", {"password": PIN, "pin": "x"})
    assert [error.actual for error in check.errors] == ["integer (hidden)", '"x"']


@pytest.mark.parametrize("mark", [{"writeOnly": True}, {"format": "password"}, {"x-secret": True}])
def test_a_mark_beside_a_reference_of_draft_07_counts(mark: dict[str, Any]) -> None:
    """There `$ref` hides what stands beside it, from the check and not from us."""
    parameters = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"key": {"$ref": "#/definitions/key", **mark, "maximum": 0}},
        "definitions": {"key": {"type": "integer"}},
    }
    keep = open_keep()
    keep.register(ToolDefinition.from_elsewhere({"name": "t", "parameters": parameters}))
    assert keep.try_validate_arguments("t", {"key": 1}).success
    check = keep.try_validate_arguments("t", json.dumps({"key": SECRET}))
    assert [error.actual for error in check.errors] == ["string (hidden)"]


def test_a_name_that_matches_a_secret_pattern_is_secret_though_it_is_listed() -> None:
    parameters = {
        "type": "object",
        "properties": {"key": {"type": "integer"}},
        "patternProperties": {"^k": {"x-secret": True}},
    }
    keep = open_keep()
    keep.register(ToolDefinition.from_elsewhere({"name": "t", "parameters": parameters}))
    check = keep.try_validate_arguments("t", json.dumps({"key": SECRET}))
    assert [error.actual for error in check.errors] == ["string (hidden)"]


def test_names_that_a_secret_object_does_not_know_are_part_of_the_secret(keep: Keep) -> None:
    check = keep.try_validate_arguments("login", {"login": {"usr": 1}, "plain": 1, "extra": 1})
    shown = [(error.path, error.message, error.suggestion) for error in check.errors]
    assert shown == [
        ("/login/(hidden)", "Unknown property '(hidden)'", "Did you mean 'user'?"),
        ("/extra", "Unknown property 'extra'", "Remove 'extra'."),
    ]
    assert isinstance(check, Refusal)
    assert check.repair is None


def test_the_place_of_what_is_no_json_is_not_named_beside_a_secret(keep: Keep) -> None:
    check = keep.try_validate_arguments("login", {"keyring": {SECRET: float("nan")}})
    assert [(error.path, error.message) for error in check.errors] == [("", "NaN and Infinity are not JSON")]


def test_a_sensitive_tool_shows_no_value_at_all() -> None:
    keep = open_keep()
    parameters = {
        "type": "object",
        "properties": {"a": {"type": "string", "enum": ["S3CRET-a", "S3CRET-b"]}, "b": {"type": "integer"}},
    }
    keep.register({"name": "vault", "description": "Open it.", "sensitive": True, "parameters": parameters})
    check = keep.try_validate_arguments("vault", json.dumps({"a": SECRET, "b": str(PIN)}))
    assert isinstance(check, Refusal)
    text = json.dumps(check.to_dict()) + check.text
    assert leaks(text) == []
    assert "S3CRET" not in text
    assert check.repair is None


def test_a_keep_can_hide_every_value() -> None:
    keep = open_keep(include_actual_values=False)
    keep.register(
        ToolDefinition.from_elsewhere(
            {"name": "t", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}
        )
    )
    check = keep.try_validate_arguments("t", json.dumps({"a": SECRET}))
    assert isinstance(check, Refusal)
    assert [error.actual for error in check.errors] == ["string (hidden)"]
    assert leaks(json.dumps(check.to_dict()) + check.text) == []


def test_without_the_guard_the_engine_quotes_the_value() -> None:
    import jsonschema_rs

    error = next(iter(jsonschema_rs.Draft202012Validator({"type": "integer"}).iter_errors(SECRET)))
    assert leaks(f"{error.message}") != []


def test_no_error_holds_a_class_name_a_machine_path_or_an_exception(keep: Keep) -> None:
    for call in CALLS:
        check = keep.try_validate_arguments("login", call if isinstance(call, str) else json.dumps(call))
        text = json.dumps(check.to_dict())
        for trace in ("Traceback", "Error(", "toolkeep.", "jsonschema", "jiter", str(Path(__file__).parent)):
            assert trace not in text


def test_a_valid_call_gives_the_secret_to_the_tool(keep: Keep) -> None:
    check = keep.try_validate_arguments("login", {"plain": 1, "by_write_only": PIN})
    assert isinstance(check, CheckedCall)
    assert check.arguments == {"plain": 1, "by_write_only": PIN}


def test_a_bug_of_ours_while_explaining_refuses_and_logs_no_value(
    keep: Keep, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(*_: object, **__: object) -> None:
        raise ValueError(SECRET)

    monkeypatch.setattr("toolkeep.validation.explain_refusal.find_faults", stumble)
    check = keep.try_validate_arguments("login", {"by_mark": SECRET})
    assert [error.code.value for error in check.errors] == ["ACODE-TSR-014"]
    logged = "".join(f"{record.getMessage()}{vars(record)}" for record in caplog.records)
    assert "could not be explained" in logged
    assert leaks(logged + json.dumps(check.to_dict())) == []
