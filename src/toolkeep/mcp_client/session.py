"""An initialized MCP session with the lists of its server, over stdio or HTTP."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from toolkeep.execution.persistent.egress_port import EgressPort
from toolkeep.mcp_client.client import McpClient
from toolkeep.mcp_client.http_session import Access, Headers, HttpSession
from toolkeep.mcp_client.http_transport import HttpTransport
from toolkeep.mcp_client.pinned_tools import Entry, ListName, described, fingerprint, identity
from toolkeep.mcp_client.stdio_transport import LINE_BYTES, StdioTransport, exit_failure
from toolkeep.mcp_client.transport import Transport, UpstreamFailed
from toolkeep.network.allowlist import HostAllowlist
from toolkeep.sandbox.persistent_process import ProcessExited, Program
from toolkeep.sandbox.plan import Recipe
from toolkeep.sandbox.unconfined_process import start_program
from toolkeep.sandbox.worker_pool import Pool

if TYPE_CHECKING:
    from toolkeep.execution.contact_events import OnContact
    from toolkeep.mcp_client.elicitation import Elicitations

BEGIN_SECONDS: Final = 30.0
"""Time limit for the handshake and the tool list."""


class McpSession:
    """An initialized session with the fingerprints (pins) of the server's tools."""

    def __init__(self, client: McpClient, tools: list[Entry], egress: EgressPort | None = None) -> None:
        self.client = client
        self.egress = egress
        """The egress proxy port of its process."""
        self.tools = [described(tool) for tool in tools]
        self._pins: dict[ListName, dict[str, str]] = {"tools": _pins(tools, "tools")}
        """Fingerprints by list; the others are fetched by the first call that needs one."""
        self.banner: tuple[str, ...] = ()
        """Lines that its process wrote before its first message."""
        self._looking = asyncio.Lock()

    async def pins(self, of: ListName) -> Mapping[str, str]:
        """The fingerprints of a list, fetched again after `list_changed`. Raises `UpstreamFailed`."""
        async with self._looking:  # other calls wait: none may be checked against a stale list
            # Forgotten first: if listing fails, the next call must try again and not trust the old pins.
            for name in self.client.take_list_changed():
                for stale in _STALE[name]:
                    self._pins.pop(stale, None)
            if of not in self._pins:
                self._pins[of] = _pins(await self.client.list_entries(of), of)
            return self._pins[of]

    @property
    def is_alive(self) -> bool:
        """Whether the session is usable."""
        return self.client.is_alive

    @property
    def last_words(self) -> str:
        """The end of its process's stderr; empty over HTTP."""
        return self.client.last_words

    def set_active(self, *, is_active: bool) -> None:
        """Tell the transport whether a call is active."""
        self.client.set_active(is_active=is_active)

    async def suspend(self) -> None:
        """Suspend the server process between calls. Raises SandboxBroken."""
        await self.client.suspend()

    async def resume(self) -> None:
        """Resume the server process. Raises SandboxBroken."""
        await self.client.resume()

    async def close(self) -> None:
        """Close the session."""
        await self.client.close()

    def discard(self) -> None:
        """Discard it without an event loop."""
        self.client.discard()


_STALE: Final[dict[str, tuple[ListName, ...]]] = {
    "tools": ("tools",),
    "prompts": ("prompts",),
    "resources": ("resources", "templates"),
}


def _pins(entries: list[Entry], of: ListName) -> dict[str, str]:
    return {identity(entry, of): fingerprint(entry, of) for entry in entries}


async def start_stdio(
    pool: Pool,
    recipe: Recipe | None,
    program: Program,
    hosts: HostAllowlist,
    protocol: str = "",
    questions: "Elicitations | None" = None,
    secrets: tuple[str, ...] = (),
    on_contact: "OnContact | None" = None,
    *,
    begin_s: float | None = None,
) -> McpSession:
    """Start a server process and initialize a session over stdio; without a recipe it is unconfined.

    Raises `UpstreamFailed`.
    """
    egress = EgressPort(hosts, on_contact)
    serve = None if hosts.is_empty else egress.serve
    try:
        process = await start_program(pool, recipe, program, line_bytes=LINE_BYTES, serve=serve)
    except ProcessExited as over:
        raise exit_failure(over) from over
    transport = StdioTransport(process, questions, secrets)
    try:
        session = await connect(transport, egress, protocol, begin_s, questions)
    except UpstreamFailed as failed:
        failed.last_words = failed.last_words or transport.last_words
        raise
    session.banner = tuple(transport.banner)
    return session


async def start_http(
    url: str,
    hosts: HostAllowlist,
    headers: Headers,
    protocol: str = "",
    access: Access | None = None,
    questions: "Elicitations | None" = None,
    secrets: tuple[str, ...] = (),
    *,
    begin_s: float | None = None,
) -> McpSession:
    """Initialize a session over streamable HTTP. Raises `UpstreamFailed`."""
    transport = HttpTransport(HttpSession(url, hosts, headers, access, secrets), questions)
    return await connect(transport, protocol=protocol, begin_s=begin_s, questions=questions)


async def connect(
    transport: Transport,
    egress: EgressPort | None = None,
    protocol: str = "",
    begin_s: float | None = None,
    questions: "Elicitations | None" = None,
) -> McpSession:
    """Initialize a session over a transport; on failure the transport is closed."""
    client = McpClient(transport, protocol, questions)
    begin_s = BEGIN_SECONDS if begin_s is None else begin_s
    try:
        async with asyncio.timeout(begin_s):
            await client.begin()
            return McpSession(client, await client.list_entries("tools"), egress)
    except TimeoutError:
        await client.close()
        raise UpstreamFailed(f"it did not answer {client.asked} in {begin_s:g} s", is_slow=True) from None
    # Also on cancellation: a started process must not outlive the call that wanted it.
    except BaseException:
        await client.close()
        raise
