"""The worker process: announces itself, opens sessions with trusted servers, keeps leases."""

import asyncio
import contextlib
import logging
import os
import re
from collections.abc import Iterator
from typing import Final

from toolkeep.config.fleet_settings import TrustedServer, WorkerSettings
from toolkeep.fleet import subjects
from toolkeep.fleet.identity import PrivateKey, PublicKey
from toolkeep.fleet.messages import PROTOCOL, SHAPE, Claims
from toolkeep.fleet.nats_link import NatsLink
from toolkeep.fleet.object_store import BodyStore
from toolkeep.fleet.sealed_session import (
    HELLO,
    SEALED,
    UNHANDLED,
    FrameInvalid,
    Hello,
    announce,
    decline,
    read_hello,
    session_of,
    welcome,
)
from toolkeep.fleet_worker.jobs import Jobs
from toolkeep.fleet_worker.lease_watchdog import LeaseWatchdog
from toolkeep.fleet_worker.server_session import ServerSession, now
from toolkeep.fleet_worker.worker_refusals import Refusals
from toolkeep.keep.keep import Keep
from toolkeep.version import __version__

log = logging.getLogger("toolkeep.fleet")

_HEARTBEAT_SECONDS: Final = 1.0
_TICK_SECONDS: Final = 0.05
_SESSIONS: Final = 256
"""Open at once: each connection of a server has one. Servers have equal shares: none can shut out another."""
_CONNECTIONS: Final = 10_000
"""Whose last hello is known; one that is replayed later opens a session that nobody confirms."""
_CONNECTION: Final = re.compile("[0-9a-f]{16}")
_LEASE_MS: Final = 300_000
"""The most that the configuration of a server takes."""
_REFUSALS_LOGGED: Final = 100
"""A second; a flood must not fill the disk."""


class Worker:
    """Serves calls of trusted servers."""

    def __init__(
        self, keep: Keep, settings: WorkerSettings, key: PrivateKey, levels: tuple[str, ...]
    ) -> None:
        """`levels` are the isolation levels that this machine was seen to provide."""
        self._key = key
        self._trusted = {PublicKey.read(one.key): one for one in settings.servers}
        self._link = NatsLink(settings.nats, "toolkeep worker")
        bodies = BodyStore(self._link, replicas=settings.nats.replicas)
        self._refusals = Refusals()
        self._jobs = Jobs(keep, settings.slots, levels, bodies, self._refusals)
        self._settings = settings
        self._levels = levels
        self._boot = os.urandom(16)
        self._announcement = announce(key, self._boot)
        self._sessions: dict[bytes, ServerSession] = {}
        self._latest: dict[tuple[PublicKey, str], int] = {}
        """The highest number of a hello, by server and connection."""
        self._logged = 0
        self._watchdog = LeaseWatchdog()
        self._is_over = False
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Serve until `stop`; raises `FleetUnavailable` if NATS cannot be reached at the start."""
        await self._link.connect()
        with self._watchdog:
            try:
                await self._link.subscribe(subjects.to_worker(self._key.public), self._on_frame)
                await self._serve_until_over()
            finally:
                for session in self._sessions.values():
                    self._jobs.end_all(session)
                await self._jobs.settle()
                self._jobs.close()
                await self._link.close()

    async def stop(self) -> None:
        """Take no new jobs, finish those that run, then end."""
        self._jobs.is_draining = True
        for session in self._confirmed():
            session.heartbeat(is_draining=True)
        await self._jobs.settle()
        for session in self._confirmed():  # signs the last answers
            session.heartbeat(is_draining=True)
        self._is_over = True
        self._wake.set()

    async def _serve_until_over(self) -> None:
        due_at = float("-inf")
        while not self._is_over:
            if now() >= due_at:
                due_at = now() + _HEARTBEAT_SECONDS
                self._beat()
            self._end_leases()
            self._sign_for_the_idle()
            # An idle worker sleeps until its next heartbeat, or its first job.
            left_s = due_at - now()
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s if self._jobs.is_idle else min(left_s, _TICK_SECONDS)):
                    await self._wake.wait()

    def _beat(self) -> None:
        self._logged = 0
        self._link.send(subjects.announcement(self._key.public), self._announcement)
        self._sessions = {id_: one for id_, one in self._sessions.items() if not one.is_forgotten}
        for session in self._confirmed():
            session.heartbeat(is_draining=self._jobs.is_draining)

    def _end_leases(self) -> None:
        """End what has no lease any more, and tell the watchdog when the next one is over."""
        for session in self._sessions.values():
            if session.running and not session.has_lease:
                log.warning("a lease is over: its jobs end", extra={"jobs": len(session.running)})
                self._jobs.end_all(session)
        if not self._watchdog.is_alive:
            raise RuntimeError("the watchdog of the leases is gone, and without it no job may run")
        self._watch()

    def _sign_for_the_idle(self) -> None:
        """Sign where nothing runs any more: a server may leave after its last call.

        Not with each last answer: a signature takes as long as the rest of a call, and calls one at a time
        would each wait for two.
        """
        for session in self._confirmed():
            if not session.running:
                session.sign()

    def _watch(self) -> None:
        busy = [session.lease_ends for session in self._sessions.values() if session.running]
        self._watchdog.set(min(busy, default=0.0))

    def _confirmed(self) -> "Iterator[ServerSession]":
        return (session for session in list(self._sessions.values()) if session.is_confirmed)

    def _on_frame(self, _: str, frame: bytes) -> None:
        server, named = "", ""
        try:
            if frame[:1] == HELLO:
                hello, key = read_hello(frame)
                named = key.text
                trusted = self._trusted_server(key)
                server = key.token
                self._hello(frame, hello, key, trusted)
            else:
                session = self._session_of(frame)
                server, named = session.server, session.trusted.key
                self._open(session, frame)
        except FrameInvalid as error:
            self._refusals.add("frame", str(error), server)
            self._logged += 1
            if self._logged <= _REFUSALS_LOGGED:
                log.warning("a frame was refused", extra={"reason": str(error), "server": named})
        except Exception:
            self._refusals.add("frame", UNHANDLED, server)
            raise

    def _trusted_server(self, key: PublicKey) -> TrustedServer:
        if (trusted := self._trusted.get(key)) is None:
            raise FrameInvalid("its server is not trusted")
        return trusted

    def _session_of(self, frame: bytes) -> ServerSession:
        session = self._sessions.get(session_of(frame))
        if frame[:1] != SEALED or session is None:
            raise FrameInvalid("it is of no session")
        return session

    def _open(self, session: ServerSession, frame: bytes) -> None:
        was_idle = self._jobs.is_idle
        session.open(frame)
        if session.running:
            if was_idle:
                self._wake.set()
            self._watch()  # before the first line of a job runs

    def _hello(self, frame: bytes, hello: Hello, server: PublicKey, trusted: TrustedServer) -> None:
        if hello.worker != self._key.public.raw or hello.boot != self._boot:
            raise FrameInvalid("it is for another worker, or an earlier process of this one")
        if not _CONNECTION.fullmatch(hello.reply):  # it is part of a subject
            raise FrameInvalid("it names no connection")
        if not 0 < hello.lease_ms <= _LEASE_MS:
            raise FrameInvalid("its lease is too long, or none")
        connection = (server, hello.reply)
        if hello.number <= self._latest.get(connection, 0):
            raise FrameInvalid("it was sent before")
        self._latest[connection] = hello.number
        if len(self._latest) > _CONNECTIONS:
            del self._latest[next(iter(self._latest))]
        subject = subjects.to_server(server, hello.reply, self._key.public.token)
        if (hello.protocol, hello.shape) != (PROTOCOL, SHAPE):
            why = f"the server is toolkeep {hello.version}, and the worker {__version__}: protocols differ"
            self._link.send(subject, decline(self._key, frame, why))
            raise FrameInvalid("its protocol is another")
        settings = self._settings
        claims = Claims(
            settings.labels, self._levels, self._jobs.claims(), settings.slots, __version__, trusted.code
        )
        sealed, answer = welcome(self._key, frame, hello)
        self._make_room(trusted)
        self._sessions[sealed.id] = session = ServerSession(
            trusted,
            self._key,
            sealed,
            hello.lease_ms / 1000,
            lambda frame: self._link.send(subject, frame),
            self._jobs,
            self._refusals,
        )
        self._link.send(subject, answer)
        session.send(claims)  # sealed, so that NATS does not learn which tools there are

    def _make_room(self, server: TrustedServer) -> None:
        """Forget sessions that nobody confirmed, or that have had no lease for long."""
        share = max(1, _SESSIONS // len(self._trusted))
        own = [one for one in self._sessions.values() if one.trusted == server]
        idle = [one for one in own if not one.running and not one.has_lease]
        for session in idle if len(own) >= share else ():
            del self._sessions[session.id]
        if len(own) - len(idle) >= share:
            raise FrameInvalid("there are too many sessions")
