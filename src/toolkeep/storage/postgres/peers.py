"""What servers on one PostgreSQL tell each other about their clients: rows, and notices that wake.

All of it is used in the event loop of one server. Sessions, events and states of work are read by any server.
What only one can do, the one that runs something, is asked of it by a message; it answers by events of a
stream with the name of the message.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final

import msgspec

from toolkeep.errors import StoreUnavailable
from toolkeep.storage.postgres.event_table import EVENT_TOPIC, EventRows, Head, StoredEvent
from toolkeep.storage.postgres.group_transactions import GroupTransactions
from toolkeep.storage.postgres.mcp_session_table import SESSION_TOPIC, SessionRows
from toolkeep.storage.postgres.message_table import MESSAGE_TOPIC, MessageRows, StoredMessage
from toolkeep.storage.postgres.shared_changes import SharedChanges
from toolkeep.storage.postgres.shared_database import SharedDatabase
from toolkeep.storage.postgres.work_table import WORK_TOPIC, StoredWork, WorkRows
from toolkeep.storage.row_key import RowKey

log = logging.getLogger("toolkeep.store")

Emit = Callable[[bytes], None]
Handler = Callable[[bytes, Emit], Awaitable[bytes]]
"""Acts on a message; it may send frames before its answer."""
Lost = Callable[[Head | None], bytes]
"""Makes the last frame of a stream whose server is gone."""

_ACTED: Final = 10_000
"""Messages that are remembered, so that none is acted on twice while it is being deleted."""
_SWEEP_SECONDS: Final = 60.0
_DROP_SECONDS: Final = 5.0
"""How long an event beyond the limits of its session stays: another server may be about to read it."""
_DROP: Final = "drop"


class _Envelope(msgspec.Struct, frozen=True):
    kind: str
    data: bytes
    asks: bool = False


class Peers:
    """One server among those that share a PostgreSQL."""

    def __init__(self, database: SharedDatabase, changes: SharedChanges, key: RowKey, secret: bytes) -> None:
        """`secret` is the same on all servers."""
        self._transactions = GroupTransactions(database)
        self._changes = changes
        self._database = database
        self.secret = secret
        self.sessions = SessionRows(self._transactions, key)
        self.events = EventRows(self._transactions, key)
        self.work = WorkRows(self._transactions, key)
        self._messages = MessageRows(self._transactions, key)
        self._handlers: dict[str, Handler] = {}
        self._listeners: dict[str, list[Callable[[str], None]]] = {}
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._acting: dict[str, asyncio.Task[None]] = {}
        self._acted: dict[str, None] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._late: list[tuple[float, str, int]] = []
        self._unsettled: dict[str, Callable[[], Awaitable[None]]] = {}
        """Last changes of work that could not be made, by its id."""
        self._receiving: asyncio.Task[None] | None = None
        self._has_more = False
        self._swept_at = time.monotonic()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unwatch: list[Callable[[], None]] = []

    @property
    def server(self) -> str:
        """The name of this process among the servers."""
        return self._database.server

    def on(self, kind: str, handler: Handler) -> None:
        """Act on the messages of a kind."""
        self._handlers[kind] = handler

    def listen(self, topic: str, heard: Callable[[str], None]) -> None:
        """Call `heard` in the event loop with the key of each change; empty if anything may have changed."""
        self._listeners.setdefault(topic, []).append(heard)

    def attend(self) -> None:
        """Begin to hear the others, in the running event loop."""
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        self.close()
        self._loop = loop
        for topic in (EVENT_TOPIC, MESSAGE_TOPIC, SESSION_TOPIC, WORK_TOPIC):
            self._unwatch.append(self._changes.watch(topic, partial(self._heard, topic)))

    def close(self) -> None:
        """Hear no more."""
        for end in self._unwatch:
            end()
        self._unwatch, self._loop = [], None

    # --- to others -------------------------------------------------------------------------------

    async def request(self, server: str, kind: str, data: bytes, emit: Emit = lambda _: None) -> bytes | None:
        """Have another server act, and return its answer; None if it is gone, and may have acted or not.

        `emit` gets the frames that come before the answer.
        """
        if not (server.isascii() and server.isalnum()):
            return None  # a client said so; as no text for PostgreSQL, it would fail requests of others, too
        self.attend()
        name = secrets.token_hex(16)
        body = msgspec.msgpack.encode(_Envelope(kind, data, asks=True))
        await self._messages.send(name, server, body)
        try:
            async for event in self.follow(name, 0, server=server):
                if event.is_last:
                    return event.frame
                emit(event.frame)
        except asyncio.CancelledError:
            self.spawn(self._tell(server, _DROP, name.encode()))
            raise
        finally:
            self.spawn(self._settle(name))
        return None

    async def tell_all(self, kind: str, data: bytes) -> None:
        """Have all other servers act."""
        self.attend()
        body = msgspec.msgpack.encode(_Envelope(kind, data))
        await self._messages.send_to_all(secrets.token_hex(16), body, but=self.server)

    async def tell(self, server: str, kind: str, data: bytes) -> None:
        """Have another server act."""
        self.attend()
        await self._tell(server, kind, data)

    async def follow(
        self, stream: str, after: int, *, server: str = "", lost: Lost | None = None
    ) -> AsyncIterator[StoredEvent]:
        """The events of a stream after a number, up to its last or until its server is gone.

        `lost` makes the event that then closes it, once, whoever follows it.
        """
        self.attend()
        is_closed = False
        with self._woken(f"{EVENT_TOPIC} {stream}") as woken:
            while True:
                woken.clear()
                read = await self.events.read(stream, after, server)
                for event in read.events:
                    yield event
                    if event.is_last:
                        return
                    after = event.number
                if read.is_written:
                    await woken.wait()
                elif lost is None or is_closed:  # what stands in its place is forged
                    return
                else:
                    is_closed = True
                    await self.events.append(stream, after + 1, lost(read.head), is_last=True)

    async def until_changed(self, work: str, seconds: float) -> None:
        """Wait for a change of a piece of work, a second at most: a notice may be lost."""
        self.attend()
        with self._woken(f"{WORK_TOPIC} {work}") as woken, contextlib.suppress(TimeoutError):
            await asyncio.wait_for(woken.wait(), min(seconds, 1.0))

    def drop_later(self, stream: str, number: int) -> None:
        """Delete an event soon."""
        self._late.append((time.monotonic(), stream, number))

    def put_later(self, work: StoredWork) -> None:
        """Store a state of work, in the order of the calls; nobody waits for it."""
        again = partial(self.work.put, work)
        self.spawn(self._settled(work.id, again(), again))

    async def put(self, work: StoredWork) -> None:
        """Store a state of work; if the database is away, once it is back."""
        again = partial(self.work.put, work)
        await self._settled(work.id, again(), again)

    async def withdraw(self, name: str) -> None:
        """Delete work that came to nothing; if the database is away, once it is back."""
        again = partial(self.work.withdraw, name)
        await self._settled(name, again(), again)

    async def _settled(self, name: str, made: Awaitable[None], again: Callable[[], Awaitable[None]]) -> None:
        try:
            await made
        except StoreUnavailable:
            # Until then other servers say that the work goes on, as long as this one lives.
            self._unsettled[name] = again
        else:
            self._unsettled.pop(name, None)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run work that nobody waits for; what the database refuses is left."""
        task = asyncio.ensure_future(_quietly(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tell(self, server: str, kind: str, data: bytes) -> None:
        body = msgspec.msgpack.encode(_Envelope(kind, data))
        await self._messages.send(secrets.token_hex(16), server, body)

    async def _settle(self, name: str) -> None:
        """A request is over: nobody may act on it any more, or reads its answer."""
        await self._messages.delete([name])
        await self.events.forget(name)

    @contextlib.contextmanager
    def _woken(self, what: str) -> Any:
        woken = asyncio.Event()
        self._waiting.setdefault(what, set()).add(woken)
        try:
            yield woken
        finally:
            self._waiting[what].discard(woken)
            if not self._waiting[what]:
                del self._waiting[what]

    # --- from others -----------------------------------------------------------------------------

    def _heard(self, topic: str, key: str) -> None:
        """Called in the thread of the changes."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(self._note, topic, key)

    def _note(self, topic: str, key: str) -> None:
        if self._loop is None:  # closed meanwhile: the loop may be about to end
            return
        for heard in self._listeners.get(topic, ()):
            heard(key)
        if topic == MESSAGE_TOPIC:
            if key in ("", self.server):
                self._receive_soon()
            if not key:
                self._sweep()
        elif key:
            for woken in self._waiting.get(f"{topic} {key}", ()):
                woken.set()
        else:
            for what, waiting in self._waiting.items():
                if what.startswith(topic):
                    for woken in waiting:
                        woken.set()

    def _receive_soon(self) -> None:
        self._has_more = True
        if self._receiving is None:
            self._receiving = asyncio.ensure_future(_quietly(self._receive()))

    async def _receive(self) -> None:
        try:
            while self._has_more:
                self._has_more = False
                messages = await self._messages.receive(self.server)
                for message in messages:
                    if message.id not in self._acted:
                        self._acted[message.id] = None
                        self._begin(message)
                if messages:
                    await self._messages.delete([message.id for message in messages])
                while len(self._acted) > _ACTED:
                    del self._acted[next(iter(self._acted))]
        finally:
            self._receiving = None

    def _begin(self, message: StoredMessage) -> None:
        envelope = msgspec.msgpack.decode(message.body, type=_Envelope)
        if envelope.kind == _DROP:
            acting = self._acting.get(envelope.data.decode())
            if acting is not None:
                acting.cancel()
            return
        task = self._acting[message.id] = asyncio.ensure_future(self._act(message.id, envelope))
        task.add_done_callback(lambda _: self._acting.pop(message.id, None))

    async def _act(self, name: str, envelope: _Envelope) -> None:
        sent = 0

        def append(frame: bytes, *, is_last: bool) -> "asyncio.Future[bool]":
            nonlocal sent
            sent += 1
            return self.events.append(name, sent, frame, is_last=is_last)

        def emit(frame: bytes) -> None:
            append(frame, is_last=False).add_done_callback(_ignore)

        handler = self._handlers.get(envelope.kind)
        answer = b""
        try:
            if handler is not None:
                answer = await handler(envelope.data, emit)
        except Exception:
            log.exception("a message of another server could not be acted on", extra={"kind": envelope.kind})
        if envelope.asks:
            with contextlib.suppress(StoreUnavailable):
                await append(answer, is_last=True)

    def _sweep(self) -> None:
        unsettled, self._unsettled = self._unsettled, {}
        for name, again in unsettled.items():
            self.spawn(self._settled(name, again(), again))
        now = time.monotonic()
        due = [(stream, number) for at, stream, number in self._late if now - at > _DROP_SECONDS]
        if due:
            self._late = self._late[len(due) :]
            self.spawn(self.events.drop(due))
        if now - self._swept_at > _SWEEP_SECONDS:
            self._swept_at = now
            self.spawn(self.events.expire())
            self.spawn(self.work.expire())


def _ignore(done: "asyncio.Future[Any]") -> None:
    """The database is away: nobody waits for this."""
    if not done.cancelled():
        done.exception()


async def _quietly(work: Coroutine[Any, Any, Any]) -> None:
    with contextlib.suppress(StoreUnavailable):
        await work
