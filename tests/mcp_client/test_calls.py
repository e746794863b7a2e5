"""Calls of imported tools, through a keep: pinned, isolated, with secrets, and clear where they fail."""

import asyncio
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.config.projects import accept
from tests.mcp_client.servers import add, call_all, listing, opened
from tests.sandbox.workers import descendants
from toolkeep import Code
from toolkeep.calls import Denied
from toolkeep.cli.main import cli
from toolkeep.config.upstream_rules import wrong_with_upstream
from toolkeep.mcp_client.elicitation import ElicitationRequest
from toolkeep.sandbox.launch import interpreter

SCRIPT = str(Path(__file__).resolve().parent / "upstream.py")

pytestmark = pytest.mark.spec("MCP-2")


def server(mode: str = "well") -> tuple[str, ...]:
    return ("up", "--", interpreter(), "-I", "-S", SCRIPT, mode)


def change(project: Path, **fields: Any) -> None:
    """What was taken over from the server is another by now, and a person accepted that."""
    data = listing(project, "up")
    data["tools"][0] |= fields
    (project / ".agent" / "up.mcp.json").write_text(json.dumps(data))
    accept(project)


def test_a_tool_is_called_in_the_sandbox(tmp_path: Path) -> None:
    add(tmp_path, *server())
    first, second = call_all(tmp_path, [("echo", {"text": "a"}), ("echo", {"text": "b"})])
    assert [(one.value, one.isolation) for one in (first, second)] == [("a", "strict"), ("b", "strict")]


@pytest.mark.spec("SBX-2")
def test_a_server_that_is_stopped_between_calls_answers_each(tmp_path: Path) -> None:
    add(tmp_path, *server())
    _say(tmp_path, "between_calls: stopped")

    async def main() -> tuple[list[Any], list[set[str]]]:
        async with opened(tmp_path) as keep:
            values, states = [], []
            for text in ("a", "b"):
                values.append((await keep.call("echo", {"text": text})).value)
                states.append(_states())
            return values, states

    assert asyncio.run(main()) == (["a", "b"], [{"T"}, {"T"}])


def _say(project: Path, line: str) -> None:
    path = project / ".agent" / "config.yml"
    path.write_text(path.read_text().replace("    mcp:", f"    {line}\n    mcp:"))
    accept(project)


def _states() -> set[str]:
    """In which states the processes of servers are."""
    ours = [f"/proc/{pid}" for pid in descendants(os.getpid())]
    servers = [path for path in ours if SCRIPT in Path(path, "cmdline").read_text()]
    return {Path(path, "stat").read_text().rpartition(")")[2].split()[0] for path in servers}


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"command": ["server"], "between_calls": "paused"}, "neither running nor stopped"),
        ({"url": "https://mcp.example/mcp", "between_calls": "stopped"}, "only applies to a command"),
        ({"command": ["server"], "between_calls": "stopped"}, ""),
    ],
)
def test_a_wrong_word_for_the_time_between_calls_is_refused(entry: dict[str, Any], said: str) -> None:
    found = wrong_with_upstream({"mcp": "up.mcp.json", **entry})
    assert said in found
    assert bool(found) == bool(said)


def test_arguments_are_checked_here(tmp_path: Path) -> None:
    add(tmp_path, *server())
    (result,) = call_all(tmp_path, [("echo", {"text": 3})])
    assert result.code is Code.WRONG_TYPE


@pytest.mark.spec("REG-3")
def test_a_tool_that_is_described_otherwise_by_now_is_not_called(tmp_path: Path) -> None:
    add(tmp_path, *server())
    change(tmp_path, description="Give back a text, as it was when it was accepted.")
    (result,) = call_all(tmp_path, [("echo", {"text": "a"})])
    assert result.code is Code.TOOL_QUARANTINED, result.text
    assert "on its server it has changed" in result.text
    assert "toolkeep add mcp up --refresh" in result.text


@pytest.mark.spec("REG-3")
def test_a_tool_of_another_program_is_another_tool(tmp_path: Path) -> None:
    add(tmp_path, *server())
    (answered,) = call_all(tmp_path, [("echo", {"text": "a"})])
    assert answered.ok, answered.text
    path = tmp_path / ".agent" / "config.yml"
    path.write_text(path.read_text().replace('"well"', '"dies"'))
    accept(tmp_path)
    (held,) = call_all(tmp_path, [("echo", {"text": "a"})])
    assert held.code is Code.TOOL_QUARANTINED, held.text


@pytest.mark.spec("REG-3")
def test_a_tool_that_changes_while_it_is_used_is_not_called_again(tmp_path: Path) -> None:
    add(tmp_path, *server("changes"))
    first, second = call_all(tmp_path, [("echo", {"text": "a"})] * 2)
    assert (first.value, second.code) == ("a", Code.TOOL_QUARANTINED), second.text


@pytest.mark.spec("REG-3")
def test_a_rename_does_not_dodge_the_pin(tmp_path: Path) -> None:
    add(tmp_path, *server())
    change(tmp_path, name="echo_before")
    (result,) = call_all(tmp_path, [("echo_before", {"text": "a"})])
    assert result.code is Code.TOOL_QUARANTINED, result.text
    assert "is no longer there" in result.text


@pytest.mark.parametrize(
    ("mode", "code", "said"),
    [
        ("fails", Code.TOOL_FAILED, "no such book"),
        (
            "dies",
            Code.TOOL_FAILED,
            "its server 'up' failed: it ended with status 7; the next call starts a new one",
        ),
        ("no content", Code.OUTPUT_INVALID, "its answer has no list of content"),
    ],
)
def test_failures_name_the_tool_and_the_server(mode: str, code: Code, said: str, tmp_path: Path) -> None:
    add(tmp_path, *server(mode))
    first, again = call_all(tmp_path, [("echo", {"text": "a"})] * 2)
    assert (first.code, again.code) == (code, code)
    assert said in first.text


def test_what_a_server_was_granted_an_agent_must_hold(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    name, *words = server()
    add(tmp_path, name, "--capability", f"fs.read:{tmp_path / 'docs'}", *words)
    (refused,) = call_all(tmp_path, [("echo", {"text": "a"})])
    assert refused.code is Code.NOT_PERMITTED
    (allowed,) = call_all(tmp_path, [("echo", {"text": "a"})], f"fs.read:{tmp_path / 'docs'}")
    assert allowed.ok, allowed.text


def test_data_that_the_command_names_is_written_and_a_denied_file_is_named_to_the_operator(
    tmp_path: Path,
) -> None:
    shop, code, denied = tmp_path / "shop.db", tmp_path / "tool.py", tmp_path.parent / f"{tmp_path.name}.txt"
    shop.write_bytes(b"SQLite format 3\0")
    code.write_text("")
    denied.write_text("")
    grant = f"fs.write:{tmp_path}"
    add(tmp_path, "up", "--capability", grant, *server("touches")[1:], "--db", str(shop), str(code))
    written, kept, hidden = call_all(
        tmp_path, [("echo", {"text": str(path)}) for path in (shop, code, denied)], grant
    )
    assert (written.value, shop.read_bytes()[-1:]) == ("written", b"!")
    # What a person accepted is the code, which is the same.
    assert call_all(tmp_path, [("echo", {"text": str(shop)})], grant)[0].value == "written"
    assert "Read-only file system" in kept.text
    add(tmp_path, "down", *server("breaks")[1:])
    (ended,) = call_all(tmp_path, [("down_echo", {"text": str(denied)})], grant)
    for result in (hidden, ended):
        found = result.error.diagnosis if result.error else None
        assert found is not None
        assert (found.denied, found.subject) == (Denied.FILE, str(denied))
    assert "it ended with status 1" in ended.text


def test_a_description_with_a_set_is_the_same_at_each_start_of_python(tmp_path: Path) -> None:
    add(tmp_path, "up", "--", interpreter(), SCRIPT, "sets")
    (result,) = call_all(tmp_path, [("echo", {"text": "a"})])
    assert result.ok, result.text


@pytest.mark.spec("AUD-5")
def test_a_server_that_says_its_secrets_says_them_to_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TOKEN", "s3cr3t-key")
    name, *words = server("tells")
    add(tmp_path, name, "--env", "TOKEN", *words)
    told, failed, died = call_all(tmp_path, [("echo", {"text": text}) for text in ("tell", "fail", "die")])
    assert told.value == "my token is (hidden)"
    assert "my token is (hidden)" in failed.text
    assert "it ended with status 7" in died.text
    logged = [str(vars(record)) for record in caplog.records]
    assert any("the token is (hidden)" in line for line in logged)
    assert "s3cr3t" not in "".join((*logged, told.text, failed.text, died.text))


def test_nothing_answers_before_a_person_has_accepted_it(tmp_path: Path) -> None:
    said = add(tmp_path, *server(), is_accepted=False)
    assert "To use them, accept the configuration" in said
    (result,) = call_all(tmp_path, [("echo", {"text": "a"})])
    assert result.code is Code.UNKNOWN_TOOL


def test_a_refreshed_list_that_is_the_same_changes_nothing(tmp_path: Path) -> None:
    add(tmp_path, *server())
    said = add(tmp_path, "up", "--refresh", is_accepted=False)
    assert "✓ 'up' lists the same as before: " in said
    assert "To use them, accept" not in said
    (result,) = call_all(tmp_path, [("echo", {"text": "a"})])
    assert result.status == "ok"


def test_a_refreshed_list_waits_for_a_person_again(tmp_path: Path) -> None:
    add(tmp_path, *server())
    change(tmp_path, description="As it was.")
    add(tmp_path, "up", "--refresh", is_accepted=False)
    assert listing(tmp_path, "up")["tools"][0]["description"] == "Give back a text."
    (waiting,) = call_all(tmp_path, [("echo", {"text": "a"})])
    assert waiting.code is Code.UNKNOWN_TOOL


@pytest.mark.spec("POL-4")
def test_a_server_may_ask_a_person_only_where_the_host_names_who_answers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add(tmp_path, *server("elicits"))
    heard: list[ElicitationRequest] = []

    def answer(question: ElicitationRequest) -> dict[str, Any]:
        heard.append(question)
        return {"why": "tea"}

    calls = [("echo", {"text": "When?"})]
    caplog.set_level(logging.INFO, "toolkeep.execution")
    (alone,) = call_all(tmp_path, calls)
    assert json.loads(alone.value) == [{}, {"action": "decline"}]
    (helped,) = call_all(tmp_path, calls, answerer=answer)
    filled = {"action": "accept", "content": {"hour": 9, "why": "tea"}}
    assert json.loads(helped.value) == [{"elicitation": {}}, filled]
    assert [(one.upstream, one.agent, one.message) for one in heard] == [("up", "ada", "When?")]
    told = [vars(record) for record in caplog.records if record.message == "upstream asked"]
    assert [(one["upstream"], one["agent"], one["outcome"]) for one in told] == [
        ("up", "ada", "refused"),
        ("up", "ada", "accept"),
    ]


@pytest.mark.spec("AUD-1", "AUD-4", "AUD-5")
def test_the_signed_log_says_that_a_server_asked_and_what_became_of_it(tmp_path: Path) -> None:
    add(tmp_path, *server("elicits"))
    calls = [("echo", {"text": "When?"})]
    (alone,) = call_all(tmp_path, calls)
    (helped,) = call_all(tmp_path, calls, answerer=lambda _: {"why": "s3cret"})

    def audit(*words: str) -> Any:
        done = CliRunner().invoke(cli, ["audit", *words, "--json", "--project", str(tmp_path)])
        assert done.exit_code == 0, done.output
        return json.loads(done.output)

    chains = [audit("show", one.call_id) for one in (alone, helped)]
    assert [[record["type"] for record in chain] for chain in chains] == [
        ["ToolInvoked", "CapabilityCheck", "PolicyDecision", "Approval", "ServerAsked", "ToolCompleted"]
    ] * 2
    refused, accepted = (chain[-2] for chain in chains)
    assert [(one["outcome"], one["answerer"]) for one in (refused, accepted)] == [
        ("refused", ""),
        ("accept", "program"),
    ]
    assert refused["question_hash"] == accepted["question_hash"] != ""
    assert {(one["upstream"], one["method"], one["of_calls"]) for one in (refused, accepted)} == {
        ("up", "elicitation/create", 1)
    }
    assert "s3cret" not in json.dumps([chain[:-1] for chain in chains])
    assert audit("receipt", helped.call_id)["record"]["type"] == "ToolCompleted"
    audit("verify")
    assert [row["status"] for row in audit("list") if row["type"] == "ServerAsked"] == ["refused", "accept"]
