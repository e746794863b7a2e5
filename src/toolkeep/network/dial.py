"""Connects to a resolved host, at one of its vetted addresses and nowhere else (DNS pinning)."""

import asyncio
import socket
from collections.abc import Iterable
from itertools import chain, zip_longest

from toolkeep.limits import DIAL_NEXT_SECONDS, DIAL_SECONDS, DIALED_ADDRESSES
from toolkeep.network.errors import HostTooSlow, HostUnreachable
from toolkeep.network.resolve import ResolvedHost


async def dial(vetted: ResolvedHost) -> socket.socket:
    """A connected socket, by happy eyeballs: staggered attempts, the first success wins.

    Takes a `ResolvedHost`, never a name: a second DNS lookup could return another, private address (DNS
    rebinding).
    """
    attempts: set[asyncio.Task[socket.socket]] = set()
    connected: socket.socket | None = None
    try:
        async with asyncio.timeout(DIAL_SECONDS):
            for address in _order(vetted.addresses):
                attempts.add(asyncio.create_task(_connect(address, vetted.host.port)))
                connected = await _first(attempts, DIAL_NEXT_SECONDS)
                if connected is not None:
                    return connected
            while attempts and connected is None:
                connected = await _first(attempts, None)
    except TimeoutError:
        raise HostTooSlow(f"'{vetted.host}' could not be reached in time") from None
    finally:
        await _cancel_all(attempts)
    if connected is None:
        raise HostUnreachable(f"'{vetted.host}' could not be reached")
    return connected


def _order(addresses: Iterable[str]) -> list[str]:
    """IPv6 and IPv4 interleaved, IPv6 first, so that a dead address family costs one attempt."""
    known = list(addresses)
    by_kind = [[one for one in known if (":" in one) is is_ipv6] for is_ipv6 in (True, False)]
    turns = chain.from_iterable(zip_longest(*by_kind))
    # Bounded: a hostile zone may return many addresses, each a connection attempt from this machine.
    return [one for one in turns if one is not None][:DIALED_ADDRESSES]


async def _connect(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        await asyncio.get_running_loop().sock_connect(opened, (address, port))
    # Also on cancellation, or the descriptor would leak.
    except BaseException:
        opened.close()
        raise
    return opened


async def _first(attempts: "set[asyncio.Task[socket.socket]]", wait_s: float | None) -> socket.socket | None:
    """The first attempt that succeeds within a time; finished ones are removed."""
    done, _ = await asyncio.wait(attempts, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
    attempts -= done
    connected = [attempt.result() for attempt in done if attempt.exception() is None]
    # Two attempts may succeed in the same iteration; the loser's descriptor must not leak.
    for spare in connected[1:]:
        spare.close()
    return connected[0] if connected else None


async def _cancel_all(attempts: "set[asyncio.Task[socket.socket]]") -> None:
    for attempt in attempts:
        attempt.cancel()
    if attempts:
        # Wait for the cancellations: a task that finished just now holds an open socket.
        await asyncio.wait(attempts)
    for attempt in attempts:
        if not attempt.cancelled() and attempt.exception() is None:
            attempt.result().close()
