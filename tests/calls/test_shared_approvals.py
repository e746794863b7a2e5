"""A call that waits on one server is answered on another, where they share a PostgreSQL (SCL-2)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.calls.test_shared_claims import Till, open_server
from tests.server.talk import until
from tests.server.web.test_app import visiting
from tests.storage.cluster import Cluster
from toolkeep import Code, Keep, ToolResult, tool
from toolkeep.approval.question import Answer, Question
from toolkeep.cli.main import cli
from toolkeep.storage.postgres import shared_database

pytestmark = pytest.mark.spec("SCL-2")

YES = Answer(verdict="approve", approver="ada", way="command")


class Servers:
    """Two keeps with state folders of their own, and what was paid through both."""

    def __init__(self, *keeps: Keep) -> None:
        self.one, self.other = keeps
        self.till = Till()
        for keep in keeps:
            keep.register(tool(name="pay", effects="writes", danger="medium")(self.till.pay))


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres: Cluster) -> Iterator[Servers]:
    url = postgres.clean()
    with contextlib.ExitStack() as stack:
        opened = [
            open_server(tmp_path / name, monkeypatch, url, approval_wait_s=60) for name in ("one", "other")
        ]
        yield Servers(*map(stack.enter_context, opened))


@contextlib.asynccontextmanager
async def paying(keep: Keep, amount: int = 5, **options: Any) -> AsyncIterator["asyncio.Task[ToolResult]"]:
    """A call, on its way."""
    task = asyncio.create_task(keep.call("pay", {"amount": amount}, forwarded=True, **options))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def asked(keep: Keep) -> Question:
    """The question that waits, as a server sees it."""
    store = keep.record.approvals
    loop, changed = asyncio.get_running_loop(), asyncio.Event()
    with store.watch(lambda _: loop.call_soon_threadsafe(changed.set)):
        async with asyncio.timeout(60):
            while not (waiting := await store.run(store.waiting)):
                await changed.wait()
                changed.clear()
    return waiting[0].question


async def answered(keep: Keep, question: Question, answer: Answer) -> str:
    store = keep.record.approvals
    return (await store.run(store.answer, question.id, answer)).state


def test_a_call_that_waits_on_one_server_is_answered_through_another(
    servers: Servers, tmp_path: Path
) -> None:
    project = str(tmp_path / "other" / "project")

    def command(*words: str) -> str:
        """On the machine of the other server."""
        return CliRunner().invoke(cli, [*words, "--project", project], catch_exceptions=False).stdout

    async def call() -> list[object]:
        said: list[object] = []
        async with visiting(servers.other) as visitor:
            await visitor.sign_in()
            await visitor.open_tab()
            tab = visitor.client.begin("GET", "/ui/events", headers=visitor.headers)
            await until(lambda: tab.response.body)
            async with paying(servers.one) as task:
                await until(lambda: b"event: approvals" in tab.response.body)
                question = await asked(servers.other)
                path = f"/v1/approvals/{question.id}:decide"
                answer = await visitor.operator.post(path, {"verdict": "approve"})
                said += [answer.status, (await task).value]
            tab.leave()
            await tab.task
        async with paying(servers.one) as task:
            question = await asked(servers.other)
            said.append(question.id[:8] in await asyncio.to_thread(command, "approvals", "list"))
            await asyncio.to_thread(command, "deny", question.id, "not today")
            said.append((await task).code)
        return said

    assert asyncio.run(call()) == [200, 1, True, Code.APPROVAL_DENIED]
    assert servers.till.paid == [5]


def test_one_yes_that_two_servers_use_at_once_runs_one_call(servers: Servers) -> None:
    store = servers.other.record.approvals

    async def race() -> int:
        """How many use the yes: the call that waits, and the other server as if it had the same one."""
        async with paying(servers.one) as task:
            question = await asked(servers.other)
            await answered(servers.other, question, YES)
            is_used, result = await asyncio.gather(store.run(store.use, question), task)
            return int(is_used) + int(result.code is None)

    async def races() -> list[int]:
        return [await race() for _ in range(10)]

    assert asyncio.run(races()) == [1] * 10


def test_a_rule_made_on_one_server_covers_calls_on_all_and_is_revoked_for_all(servers: Servers) -> None:
    async def call() -> list[object]:
        async with paying(servers.one) as task:
            question = await asked(servers.other)
            rule = Answer(verdict="approve", approver="ada", way="command", reach="rule")
            await answered(servers.other, question, rule)
            await task
        covered = await servers.other.call("pay", {"amount": 5}, forwarded=True)
        [made] = servers.other.record.approvals.rules()
        revoked = servers.one.record.approvals.revoke(made.id)
        async with paying(servers.other):
            await asked(servers.one)
        return [covered.value, revoked]

    assert asyncio.run(call()) == [2, True]


def test_without_the_database_nothing_runs_and_what_waited_goes_on_when_it_is_back(
    servers: Servers, postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_database, "_PATIENCE_SECONDS", 0.2)

    async def outage() -> list[object]:
        async with paying(servers.one) as waits:
            question = await asked(servers.other)
            await asyncio.to_thread(postgres.stop)
            refused = await servers.other.call("pay", {"amount": 7}, forwarded=True)
            await asyncio.to_thread(postgres.start)
            async with asyncio.timeout(20):
                assert await asked(servers.other) == question
                await answered(servers.other, question, YES)
                result = await waits
        return [refused.code, result.value]

    assert asyncio.run(outage()) == [Code.STORE_UNAVAILABLE, 1]
    assert servers.till.paid == [5]
