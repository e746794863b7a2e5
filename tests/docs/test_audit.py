"""The page about the log names every kind of record with its fields, and everything that verifying can find."""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.docs.markdown import ROOT
from toolkeep import Answer, Keep, ToolFailed, tool
from toolkeep.audit.findings import Kind
from toolkeep.audit.record import Recorder
from toolkeep.audit.record_kinds import (
    AgentDrift,
    AnsweredLate,
    AnswersSigned,
    AuditAlarm,
    IdentityRefused,
    OperatorChange,
    RanElsewhere,
    RefusedElsewhere,
    SessionEnded,
    WorkerRefused,
    WorkersDisagreed,
    written,
)
from toolkeep.calls import Identity, caller_identity
from toolkeep.cli.audit import command
from toolkeep.flow.flow_settings import read_flow
from toolkeep.mcp_client.elicitation import Elicitations
from toolkeep.mcp_client.elicitation_audit import ActiveCall
from toolkeep.policy.policy_settings import PolicySettings, sources_of
from toolkeep.storage.log.audit_log import AuditLog
from toolkeep.stores.records import MemoryRecord

PAGE = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
COMMAND_LINE = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")


def documented(kind: str) -> set[str]:
    """The fields in the first column of the table under the heading of a kind of record."""
    section = PAGE.split(f"\n### {kind}\n")[1].split("\n#")[0]
    cells = re.findall(r"^\| (`[^|]+`) \|", section, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def double(number: int) -> int:
    """Double a number.

    Args:
        number: The number.
    """
    if number < 0:
        raise ToolFailed("the number is negative")
    return 2 * number


@tool(effects="reads")
def echo(text: str) -> str:
    """Give a text back."""
    return text


async def asked_something(record: MemoryRecord) -> None:
    """A server asks for something while it has a call."""
    recorder = Recorder(record.log, record.bodies, record.secret_key)
    questions = Elicitations(None, "shelf", "ada", lambda _: None, recorder.note)
    with questions.during_call(ActiveCall("a call")):
        questions.refuse("roots/list")
    await asyncio.sleep(0)


def records(tmp_path: Path) -> list[Mapping[str, Any]]:
    """Records of every kind: of a call that runs, of some that do not, of a server that asks, and of a new key."""
    record = MemoryRecord()
    answers = iter((True, False, True))
    keep = Keep(record=record, approver=lambda _: next(answers))
    keep.register(double)
    for _ in range(2):
        keep.call_sync("double", {"number": 1}, idempotency_key="once")
    keep.call_sync("double", {})
    keep.call_sync("double", {"number": 1}, timeout_s=0)
    keep.call_sync("double", {"number": -1})
    for _ in range(2):
        keep.call_sync("double", {"number": 1}, confirm=True)
    keep.use_policies(
        *(f'@id("{name}") @{name} permit (principal, action, resource);' for name in ("ask", "silent"))
    )
    keep.call_sync("double", {"number": 1})
    keep.use_policies(
        '@id("all") permit (principal, action, resource);',
        '@id("seen") @ask forbid (principal, action == Action::"call", resource) when { context.state.opened };',
    )
    keep.call_sync("double", {"number": 1})
    keep.close()
    with Keep(
        record=record, before_call=[lambda call: call.arguments], after_call=[lambda _, value: value]
    ) as hooked:
        hooked.register(double)
        hooked.call_sync("double", {"number": 1}, data={"tenant": "acme"})
    who = Identity(issuer="https://login.example.org", subject="ada")
    known = caller_identity.set(who)
    yes = Answer(verdict="approve", approver="bob", way="x", identity=replace(who, subject="bob"))
    with Keep(record=record, approver=lambda _: yes) as served:
        served.register(double)
        served.call_sync("double", {"number": 1}, confirm=True)
    caller_identity.reset(known)
    shadow = sources_of(['@id("s") @shadow forbid (principal, action, resource);'])
    typed = PolicySettings(flow=read_flow({"view": "typed"}), sources=shadow)
    with Keep(record=record, policy=typed) as viewed:
        viewed.register(echo)
        text = viewed.call_sync("echo", {"text": "Hello"}).view
        viewed.call_sync("echo", {"text": text})
    asyncio.run(asked_something(record))
    with AuditLog(tmp_path / "state") as log:
        log.rotate_key()
        ended = SessionEnded(
            agent="a",
            ended_by="operator:a",
            opened=True,
            secret=False,
            session="a",
            time="2026-01-01T00:00:00Z",
        )
        log.append(msgspec.to_builtins(ended)).result()
        alarm = AuditAlarm(alarm="a", checkpoints=(), origin="o", reason="r", time=ended.time, witness="")
        log.append(msgspec.json.decode(written(alarm))).result()
        for kind in (
            OperatorChange,
            AgentDrift,
            RanElsewhere,
            AnsweredLate,
            AnswersSigned,
            WorkerRefused,
            RefusedElsewhere,
            WorkersDisagreed,
            IdentityRefused,
        ):
            blank = dict.fromkeys(kind.__struct_fields__, "") | {"type": kind.__name__}
            log.append(blank).result()
        return [entry.record for entry in (*record.log.entries, *log.read())]


@pytest.mark.spec("DOC-1")
def test_every_field_of_every_record_is_on_the_page_and_nothing_else(tmp_path: Path) -> None:
    found: dict[str, set[str]] = {}
    for record in records(tmp_path):
        found.setdefault(record.get("type") or record["event"], set()).update(record)
    assert {kind: documented(kind) for kind in re.findall(r"^### (.*)$", PAGE, re.MULTILINE)} == found


@pytest.mark.spec("DOC-1")
def test_everything_that_verifying_can_find_is_on_the_page_once() -> None:
    section = PAGE.split("\n## What verify finds\n")[1].split("\n## ")[0]
    assert re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE) == [kind.value for kind in Kind]


@pytest.mark.spec("DOC-1")
@pytest.mark.parametrize("name", sorted(command.commands))
def test_every_audit_command_is_on_the_page_and_on_that_of_the_command_line(name: str) -> None:
    assert re.search(rf"audit {name}\b|`{name}`", PAGE)
    assert f"`{name}`" in COMMAND_LINE
