"""What a webhook is sent, and where it is not sent. Run by `tests/telemetry/test_webhook.py`."""

import asyncio
import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime
from typing import Any

from tests.network.inside.egress import Server
from tests.network.world import METADATA, PRIVATE, PUBLIC, World
from toolkeep.events import Event, ToolDefinitionDeletedEvent, ToolQuarantined, ToolUnregistered
from toolkeep.telemetry.webhook import Webhook

SECRET = "a secret that nobody guesses"
TAKEN = b"HTTP/1.1 204 No Content\r\n\r\n"
AWAY = b"HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n"
DELETED = ToolDefinitionDeletedEvent(
    definition_id="d", tool_name="weather", deleted_by="ada", timestamp=datetime(2030, 1, 2, tzinfo=UTC)
)
QUARANTINED = ToolQuarantined(tool_name="storm", pinned_hash="a", definition_hash="b")


class Receiver(Server):
    """A server that says when it has answered."""

    def __init__(self) -> None:
        super().__init__(TAKEN)
        self._answered = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await super().__call__(reader, writer)
        self._answered.set()

    async def until(self, count: int) -> None:
        """Wait until it has heard so many."""
        while len(self.heard) < count:
            self._answered.clear()
            await self._answered.wait()


async def receiver(world: World, *answers: bytes, name: str = "hook.example") -> Receiver:
    world.name(name, [PUBLIC])
    server = Receiver()
    server.turns = list(answers)
    await world.serve(server, PUBLIC, 443, names=[name])
    return server


def webhook(url: str = "https://hook.example/in", **settings: Any) -> Webhook:
    return Webhook(url, SECRET, source="/toolkeep/test", **{"pauses": (0.0, 0.0), **settings})


async def send(hook: Webhook, *events: Event) -> None:
    """Tell events and wait until each was posted or lost."""
    for event in events:
        hook(event)
    await asyncio.to_thread(hook.close)


async def test_an_event_is_posted_as_a_cloud_event_that_its_receiver_can_check(world: World) -> None:
    server = await receiver(world)
    await send(webhook(clock=lambda: 1_900_000_000.5), DELETED)
    (heard,) = server.heard
    head, _, body = heard.partition(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    headers = {name.lower(): value for name, value in headers.items()}
    event = json.loads(body)
    assert head.startswith(b"POST /in HTTP/1.1\r\n")
    assert headers["content-type"] == "application/cloudevents+json"
    assert event == {
        "specversion": "1.0",
        "id": headers["webhook-id"],
        "source": "/toolkeep/test",
        "type": "toolkeep.ToolDefinitionDeletedEvent",
        "subject": "weather",
        "time": "2030-01-02T00:00:00+00:00",
        "datacontenttype": "application/json",
        "data": {
            "definition_id": "d",
            "tool_name": "weather",
            "deleted_by": "ada",
            "timestamp": "2030-01-02T00:00:00Z",
        },
    }
    signed = f"{headers['webhook-id']}.1900000000.".encode() + body
    mac = base64.b64encode(hmac.digest(SECRET.encode(), signed, hashlib.sha256)).decode()
    assert headers["webhook-signature"] == f"v1,{mac}"
    assert SECRET.encode() not in heard


async def test_what_is_not_taken_is_posted_again_and_in_order(world: World) -> None:
    server = await receiver(world, AWAY, b"", TAKEN)
    hook = webhook(pauses=(0.0,) * 3)
    hook(DELETED)
    hook(QUARANTINED)
    await server.until(4)
    await asyncio.to_thread(hook.close)
    ids = [json.loads(heard.partition(b"\r\n\r\n")[2])["id"] for heard in server.heard]
    assert ids[0] == ids[1] == ids[2] != ids[3]
    assert hook.lost == 0


async def test_what_is_never_taken_is_given_up_and_counted(world: World) -> None:
    server = await receiver(world, AWAY, AWAY, AWAY)
    hook = webhook()
    hook(DELETED)
    await server.until(3)
    await asyncio.to_thread(hook.close)
    assert (hook.lost, len(server.heard)) == (1, 3)


async def test_a_target_that_is_not_public_is_never_dialled(world: World) -> None:
    server = Server(TAKEN)
    for address in (PRIVATE, METADATA, "127.0.0.1"):
        await world.serve(server, address, 443, names=["hook.example"])
    for answers in ([PRIVATE], [METADATA], ["127.0.0.1"], [PUBLIC, PRIVATE]):
        world.name("hook.example", answers)
        hook = webhook()
        await send(hook, DELETED)
        assert hook.lost == 1
    for url in (f"https://{METADATA}/", "https://127.0.0.1/", "https://localhost/"):
        hook = webhook(url)
        await send(hook, DELETED)
        assert hook.lost == 1
    assert server.heard == []


async def test_a_name_that_turns_private_after_it_was_looked_up_gains_nothing(world: World) -> None:
    inside, outside = Server(TAKEN), await receiver(world)
    world.name("hook.example", [PUBLIC], [PRIVATE])
    await world.serve(inside, PRIVATE, 443, names=["hook.example"])
    hook = webhook(pauses=())
    hook(DELETED)
    await outside.until(1)
    await send(hook, QUARANTINED)
    assert inside.heard == []


async def test_a_redirect_is_not_followed(world: World) -> None:
    server = await receiver(world)
    targets = ("https://hook.example/other", f"https://{METADATA}/", "http://hook.example/")
    for count, target in enumerate(targets, start=1):
        server.turns = [f"HTTP/1.1 307 Moved\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode()]
        hook = webhook(pauses=())
        await send(hook, DELETED)
        assert (hook.lost, len(server.heard)) == (1, count)


async def test_a_target_with_another_certificate_gets_nothing(world: World) -> None:
    world.name("hook.example", [PUBLIC])
    server = Server(TAKEN)
    await world.serve(server, PUBLIC, 443, names=["other.example"])
    hook = webhook(pauses=())
    await send(hook, DELETED)
    assert (hook.lost, server.heard) == (1, [])


async def test_only_what_was_asked_for_is_posted(world: World) -> None:
    server = await receiver(world)
    hook = webhook(types=["ToolQuarantined"])
    await send(hook, DELETED, ToolUnregistered(tool_name="x", version=""), QUARANTINED)
    assert [json.loads(h.partition(b"\r\n\r\n")[2])["subject"] for h in server.heard] == ["storm"]


async def test_an_answer_without_an_end_is_given_up(world: World) -> None:
    endless = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"ffff\r\n" + b"x" * 0xFFFF + b"\r\n"
    server = Server(endless * 1 + (b"ffff\r\n" + b"x" * 0xFFFF + b"\r\n") * 20)
    world.name("hook.example", [PUBLIC])
    await world.serve(server, PUBLIC, 443, names=["hook.example"])
    hook = webhook(pauses=())
    await send(hook, DELETED)
    assert hook.lost == 1


async def test_a_full_queue_loses_events_and_never_waits(world: World) -> None:
    stuck = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read(1)
        await stuck.wait()

    world.name("hook.example", [PUBLIC])
    await world.serve(silent, PUBLIC, 443, names=["hook.example"])
    hook = webhook(pauses=())
    for _ in range(1_500):
        hook(DELETED)
    assert 499 <= hook.lost <= 500
    stuck.set()
