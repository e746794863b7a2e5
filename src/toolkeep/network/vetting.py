"""A granted host becomes addresses that may be dialled: resolved once, every answer vetted.

Comes in: a `Host`, and the scopes that a call was granted. Goes out: a `Vetted`, which holds addresses; only
`vet` makes one, and `dialing` takes nothing else, so that no name is resolved a second time (DNS rebinding).
One answer that is not public condemns the whole name: whoever mixes them means to be asked again.
Trusts the system's resolver to say what a name means, and nothing about where that leads.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from toolkeep.limits import RESOLUTIONS_AT_ONCE, RESOLVE_SECONDS, RESOLVED_ADDRESSES
from toolkeep.network.addresses import not_public
from toolkeep.network.errors import HostTooSlow, HostUnreachable, NetworkRefused
from toolkeep.network.hosts import Host, HostScope

HOSTS_FILE: Final = "/etc/hosts"
_RESOLVING: Final = threading.BoundedSemaphore(RESOLUTIONS_AT_ONCE)


class Vetted(msgspec.Struct, frozen=True):
    """A host and port that may be dialled, and where."""

    host: Host
    addresses: tuple[str, ...]
    """In the order of the resolver; all of them public."""


async def vet(host: Host, allowed: Iterable[HostScope]) -> Vetted:
    """The addresses of a host that was granted; raises `NetworkRefused` or `HostUnreachable`."""
    if not any(scope.contains(host) for scope in allowed):
        raise NetworkRefused(f"'{host}' is not among the hosts that this call may reach")
    found = (host.name,) if host.is_address else await _resolve(host.name)
    if any(map(not_public, found)):
        # Which address it is, and of which kind, would tell how the network here is laid out.
        reason = "is not a public address" if host.is_address else "does not lead to public addresses alone"
        raise NetworkRefused(f"'{host}' {reason}")
    return Vetted(host, found)


async def _resolve(name: str) -> tuple[str, ...]:
    if not _RESOLVING.acquire(blocking=False):
        raise HostUnreachable(f"'{name}' was not looked up: too many names are being looked up already")
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[str, ...] | OSError] = loop.create_future()
    # A thread of its own, not the loop's: a name server that never answers would take those from everybody.
    threading.Thread(target=_look_up, args=(name, loop, done), name="toolkeep-resolve", daemon=True).start()
    try:
        async with asyncio.timeout(RESOLVE_SECONDS):
            found = await done
    except TimeoutError:
        raise HostTooSlow(f"'{name}' could not be looked up in time") from None
    if isinstance(found, OSError) or not found:
        raise HostUnreachable(f"'{name}' could not be found")
    if len(found) > RESOLVED_ADDRESSES:
        raise NetworkRefused(f"'{name}' leads to more than {RESOLVED_ADDRESSES} addresses")
    return found


def _look_up(
    name: str, loop: asyncio.AbstractEventLoop, done: "asyncio.Future[tuple[str, ...] | OSError]"
) -> None:
    """What the system's resolver says, from a thread, handed to whoever still waits."""
    found: tuple[str, ...] | OSError
    try:
        found = _in_hosts_file(name) or _by_resolver(name)
    except (OSError, UnicodeError) as error:
        found = error if isinstance(error, OSError) else OSError(str(error))
    finally:
        _RESOLVING.release()
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(_settle, done, found)


def _by_resolver(name: str) -> tuple[str, ...]:
    # With a dot behind it a name is whole, and no search list of this machine completes it.
    answers = socket.getaddrinfo(f"{name}.", None, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(answer[4][0]) for answer in answers))


def _in_hosts_file(name: str) -> tuple[str, ...]:
    """What the operator wrote down for a name; the resolver does not find that with a dot behind it."""
    try:
        lines = Path(HOSTS_FILE).read_text("utf-8", "replace").splitlines()
    except OSError:
        return ()
    words = [line.partition("#")[0].split() for line in lines]
    wanted = name.casefold()
    return tuple(
        dict.fromkeys(first for first, *names in filter(None, words) if wanted in map(str.casefold, names))
    )


def _settle(done: "asyncio.Future[tuple[str, ...] | OSError]", found: "tuple[str, ...] | OSError") -> None:
    if not done.done():
        done.set_result(found)
