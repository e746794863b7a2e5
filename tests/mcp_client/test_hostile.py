"""Hostile MCP servers, each in the sandbox: what becomes of a call, and that the host stays well."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from toolkeep.execution.persistent.confinement import confinement_for_grants, worker_recipe
from toolkeep.execution.persistent.spec import ProcessSpec
from toolkeep.mcp_client import session as talking
from toolkeep.mcp_client.client import value_of
from toolkeep.mcp_client.elicitation_audit import ActiveCall
from toolkeep.mcp_client.session import McpSession, start_stdio
from toolkeep.mcp_client.transport import UpstreamFailed
from toolkeep.sandbox.kernel_probe import Findings, probe
from toolkeep.sandbox.launch import interpreter
from toolkeep.sandbox.trusted_paths import THIS_PROCESS
from toolkeep.sandbox.worker_pool import Pool

SCRIPT = str(Path(__file__).resolve().parent / "upstream.py")

pytestmark = pytest.mark.spec("MCP-2")


@pytest.fixture(scope="module")
def findings() -> Findings:
    return probe()


@asynccontextmanager
async def talk_with(mode: str, findings: Findings) -> AsyncIterator[McpSession]:
    pool = Pool()
    staying = ProcessSpec.read([interpreter(), "-I", "-S", SCRIPT, mode])
    program = staying.program("/", lambda name: name)
    place = confinement_for_grants((), interpreter(), staying, THIS_PROCESS, "/")
    try:
        talk = await start_stdio(pool, worker_recipe(place, findings), program, place.hosts)
        try:
            yield talk
        finally:
            await talk.close()
    finally:
        await pool.close()


def said_to(mode: str, findings: Findings, *texts: str) -> list[Any]:
    """What a server answers to some calls, one after the other; failures are answers too."""

    async def main() -> list[Any]:
        found: list[Any] = []
        async with talk_with(mode, findings) as talk:
            for text in texts:
                try:
                    said = await talk.client.call(
                        "tools/call", {"name": "echo", "arguments": {"text": text}}, ActiveCall("call")
                    )
                    found.append(value_of(said, wants_structure=False))
                except UpstreamFailed as failed:
                    found.append(failed)
        return found

    return asyncio.run(main())


@pytest.mark.parametrize("mode", ["well", "modern"])
def test_both_eras_are_spoken(mode: str, findings: Findings) -> None:
    async def main() -> tuple[dict[str, str], list[str], Any]:
        async with talk_with(mode, findings) as talk:
            said = await talk.client.call(
                "tools/call", {"name": "echo", "arguments": {"text": "hello"}}, ActiveCall("call")
            )
            return talk.client.server, list(await talk.pins("tools")), value_of(said, wants_structure=False)

    server, tools, value = asyncio.run(main())
    assert (tools, value) == (["echo"], "hello")
    assert "\x1b" not in str(server)


CALLS = {
    "flood": "it sent more than 2000 unsolicited messages",
    "another": "it answered a request that was not made",
    "twice": "it answered a request that was not made",
    "dies": "it ended with status 7",
    "brackets": "it sent an invalid message: it holds more than 50000 arrays and objects",
    "junk": "it sent something that is not a JSON-RPC message",
}


@pytest.mark.parametrize("mode", CALLS)
def test_what_a_server_says_wrongly_ends_the_conversation(mode: str, findings: Findings) -> None:
    first, *rest = said_to(mode, findings, "a", "b")
    wrong = rest[0] if mode == "twice" else first
    assert isinstance(wrong, UpstreamFailed)
    assert (wrong.reason, wrong.is_over) == (CALLS[mode], True)
    assert isinstance(rest[-1], UpstreamFailed)  # nothing more is said to it


def test_a_message_without_end_is_not_read(findings: Findings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(talking, "LINE_BYTES", 1 << 20)
    (wrong,) = said_to("endless", findings, "a")
    assert wrong.reason.startswith("it sent a message of more than")


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("error", "it answered with error -32603: broke\\u001b[0m inside"),
        ("no content", "its answer has no list of content"),
        ("wants more", "it requires more input before it answers"),
    ],
)
def test_a_wrong_answer_is_only_that(mode: str, reason: str, findings: Findings) -> None:
    first, second = said_to(mode, findings, "a", "b")
    assert first.reason.startswith(reason)
    assert not second.is_over


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("old", "it speaks an unsupported version of MCP"),
        ("circle", "its list of tools repeats a cursor"),
        ("pages", "its list of tools has more than 2000 entries or 200 pages"),
        ("no list", "its list of tools is not a list of objects"),
        ("silent", "it did not answer initialize in 1 s"),
    ],
)
def test_a_server_that_cannot_be_begun_with_is_ended(
    mode: str, reason: str, findings: Findings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(talking, "BEGIN_SECONDS", 1.0 if mode == "silent" else 30.0)
    with pytest.raises(UpstreamFailed) as failed:
        said_to(mode, findings)
    assert failed.value.reason.startswith(reason)


def test_all_pages_are_listed(findings: Findings) -> None:
    async def main() -> list[str]:
        async with talk_with("two pages", findings) as talk:
            return list(await talk.pins("tools"))

    assert asyncio.run(main()) == ["echo", "second"]


def test_what_a_server_asks_of_us_is_refused_and_a_ping_answered(findings: Findings) -> None:
    (said,) = said_to("asks", findings, "a")
    assert '"id": "mine"' in said
    assert "-32601" in said
    assert '"id": "alive", "result": {}' in said


def test_a_call_that_is_given_up_is_cancelled_there_and_its_late_answer_harms_nobody(
    findings: Findings,
) -> None:
    async def main() -> Any:
        async with talk_with("slow", findings) as talk:
            waiting = asyncio.ensure_future(
                talk.client.call(
                    "tools/call", {"name": "echo", "arguments": {"text": "wait"}}, ActiveCall("call")
                )
            )
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait({waiting})
            return value_of(
                await talk.client.call(
                    "tools/call", {"name": "echo", "arguments": {"text": "next"}}, ActiveCall("call")
                ),
                wants_structure=False,
            )

    assert asyncio.run(main()) == "heard ['notifications/cancelled']"


def test_progress_is_handed_on_cleaned(findings: Findings) -> None:
    told: list[tuple[float, float | None, str]] = []

    async def main() -> None:
        async with talk_with("progress", findings) as talk:
            await talk.client.call(
                "tools/call",
                {"name": "echo", "arguments": {"text": "a"}},
                ActiveCall("call"),
                lambda *one: told.append(one),
            )

    asyncio.run(main())
    assert told == [(1.0, 2.0, "on\\u001b[31m"), (2.0, 2.0, "on\\u001b[31m")]
