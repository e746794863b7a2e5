"""CONNECT: TLS between a worker and a host, passed on unread once the ClientHello names that very host."""

import asyncio

from toolkeep.limits import HEAD_SECONDS
from toolkeep.network.client_hello import ACCESS_DENIED, server_name
from toolkeep.network.errors import HostTooSlow, NetworkRefused
from toolkeep.network.hosts import Host, HostRefused, read_host
from toolkeep.network.link import Link, one_error

_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


async def tunnel(link: Link, host: Host) -> None:
    """Say yes, look at the ClientHello, then pass on both ways until the host has said all."""
    async with link.awake():
        await link.reply(_ESTABLISHED)
        try:
            hello = await _hello(link, host)
        except NetworkRefused:
            await link.reply(ACCESS_DENIED)
            raise
        await link.send(hello)
        with one_error():
            async with asyncio.TaskGroup() as ways:
                up = ways.create_task(_pass_up(link))
                while data := await link.receive():
                    await link.reply(data)
                up.cancel()


async def _pass_up(link: Link) -> None:
    while data := await link.hear():
        await link.send(data)
    link.host[1].write_eof()


async def _hello(link: Link, host: Host) -> bytes:
    """All bytes up to and with a ClientHello that names the host."""
    data = b""
    try:
        async with asyncio.timeout(HEAD_SECONDS):
            while (name := server_name(data)) is None:
                if not (more := await link.hear()):
                    raise EOFError
                data += more
    except TimeoutError:
        raise HostTooSlow("the TLS ClientHello did not come in time") from None
    try:
        said = read_host(name)
    except HostRefused:
        raise NetworkRefused("TLS names a server that is no host (SNI)") from None
    if said.port or said.is_address or said.name != host.name:
        raise NetworkRefused(f"TLS names another server (SNI) than the '{host}' of CONNECT")
    return data
