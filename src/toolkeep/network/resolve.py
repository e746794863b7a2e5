"""DNS resolution with pinning: a granted host is resolved once, and every address is checked (SSRF).

Input: a `Host` and the granted scopes. Output: a `ResolvedHost` with addresses. Only `resolve_host` makes
one, and `dial` takes nothing else, so no name is resolved a second time (DNS rebinding). One address that is
not granted condemns the whole name: whoever mixes them hopes for a retry that picks the private one. Trusts
the system resolver for the meaning of a name, not for where it leads.
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
from toolkeep.network.addresses import AddressClass, classify, non_public_reason
from toolkeep.network.errors import HostTooSlow, HostUnreachable, NetworkRefused
from toolkeep.network.hosts import Host, HostScope
from toolkeep.network.own_endpoints import is_own

HOSTS_FILE: Final = "/etc/hosts"
_RESOLVING: Final = threading.BoundedSemaphore(RESOLUTIONS_AT_ONCE)


class ResolvedHost(msgspec.Struct, frozen=True):
    """A host and port that may be dialled, with its pinned addresses."""

    host: Host
    addresses: tuple[str, ...]
    """In resolver order; each public, or private and granted by name."""

    @property
    def is_private(self) -> bool:
        """Whether an address is private or loopback."""
        return any(classify(address) is not AddressClass.PUBLIC for address in self.addresses)


async def resolve_host(host: Host, allowed: Iterable[HostScope]) -> ResolvedHost:
    """Addresses of a granted host; raises `NetworkRefused` or `HostUnreachable`."""
    # Before the lookup: resolving a name that is not granted would already leak it to a name server.
    granting = [scope for scope in allowed if scope.contains(host)]
    if not granting:
        raise NetworkRefused(f"'{host}' is not among the hosts that this call may reach")
    found = (host.name,) if host.is_address else await _resolve(host.name)
    # All addresses, not only the first: the connection may use any of them.
    for address in found:
        if not any(scope.reaches(address) for scope in granting):
            raise _misled(host, address, granting)
        if is_own(address, host.port):
            raise NetworkRefused(f"'{host}' is a port of toolkeep itself, which no tool may contact")
    return ResolvedHost(host, found)


def _misled(host: Host, address: str, granting: Iterable[HostScope]) -> NetworkRefused:
    """The refusal of a name that leads to an address which is not granted."""
    # The address and its kind would reveal the layout of the internal network.
    where = "granted" if any(scope.leads_to for scope in granting) else "public"
    refused = NetworkRefused(f"'{host}' resolves to an address that is not {where}")
    what, port = non_public_reason(address), f":{host.port}"
    if classify(address) is AddressClass.BARRED:
        refused.remedy = f"{address} is {what}: no grant allows it"
    else:
        refused.remedy = f"it resolves to {address}, which needs its own grant: {host.name}{port}={address}"
    return refused


async def _resolve(name: str) -> tuple[str, ...]:
    # getaddrinfo cannot be cancelled: without a bound, hanging lookups would pile up threads.
    if not _RESOLVING.acquire(blocking=False):
        raise HostUnreachable(f"'{name}' was not resolved: too many lookups are in progress")
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[str, ...] | OSError] = loop.create_future()
    # A dedicated thread, not the loop's executor: a name server that never answers would block that for
    # everybody.
    threading.Thread(target=_look_up, args=(name, loop, done), name="toolkeep-resolve", daemon=True).start()
    try:
        async with asyncio.timeout(RESOLVE_SECONDS):
            found = await done
    except TimeoutError:
        raise HostTooSlow(f"'{name}' could not be resolved in time") from None
    if isinstance(found, OSError) or not found:
        raise HostUnreachable(f"'{name}' could not be resolved")
    # A zone with thousands of addresses would turn one call into a scan.
    if len(found) > RESOLVED_ADDRESSES:
        raise NetworkRefused(f"'{name}' resolves to more than {RESOLVED_ADDRESSES} addresses")
    return found


def _look_up(
    name: str, loop: asyncio.AbstractEventLoop, done: "asyncio.Future[tuple[str, ...] | OSError]"
) -> None:
    """Query the system resolver in a thread, and hand the result to the loop."""
    found: tuple[str, ...] | OSError
    try:
        # /etc/hosts is the operator's word, but its addresses are vetted too.
        found = _in_hosts_file(name) or _by_resolver(name)
    except (OSError, UnicodeError) as error:
        found = error if isinstance(error, OSError) else OSError(str(error))
    finally:
        _RESOLVING.release()
    with contextlib.suppress(RuntimeError):  # The loop is closed.
        loop.call_soon_threadsafe(_settle, done, found)


def _by_resolver(name: str) -> tuple[str, ...]:
    # The trailing dot makes the name absolute: no search list of this machine completes it.
    answers = socket.getaddrinfo(f"{name}.", None, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(answer[4][0]) for answer in answers))


def _in_hosts_file(name: str) -> tuple[str, ...]:
    """Entries of /etc/hosts for a name; the resolver does not find those with a trailing dot."""
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
