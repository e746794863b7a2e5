"""A conversation that has begun, with what its server listed: by lines with a program, or by HTTP."""

import asyncio
from typing import TYPE_CHECKING, Any, Final

from toolkeep.execution.way_out import WayOut
from toolkeep.network.reaching import HostReach
from toolkeep.sandbox.plan import Recipe
from toolkeep.sandbox.pool import Pool
from toolkeep.sandbox.resident import Program, Resident, ResidentOver
from toolkeep.sources.mcp.by_http import HttpSpeaker
from toolkeep.sources.mcp.by_lines import LINE_BYTES, LineSpeaker, ended
from toolkeep.sources.mcp.conversation import Conversation
from toolkeep.sources.mcp.http_session import Access, Headers, HttpSession
from toolkeep.sources.mcp.listing import described, fingerprint
from toolkeep.sources.mcp.speaking import Speaker, UpstreamFailed

if TYPE_CHECKING:
    from toolkeep.sources.mcp.questions import Questions

BEGIN_SECONDS: Final = 30.0
"""How long a server may take to say who it is and to list its tools."""


class Talk:
    """A server that is ready, and the fingerprints of its tools."""

    def __init__(
        self, conversation: Conversation, tools: list[dict[str, Any]], way_out: WayOut | None = None
    ) -> None:
        self.conversation = conversation
        self.way_out = way_out
        """Where it reaches hosts from here."""
        self.tools = [described(tool) for tool in tools]
        self.pins = _pins(self.tools)
        self._has_changed = False
        self._looking = asyncio.Lock()

    async def look_again(self) -> None:
        """List the tools anew where the server said that they have changed. Raises `UpstreamFailed`."""
        async with self._looking:  # nobody goes by the old list while another waits for the new one
            self._has_changed = self.conversation.take_change() or self._has_changed
            if self._has_changed:
                self.tools = [described(tool) for tool in await self.conversation.list_tools()]
                self.pins = _pins(self.tools)
                self._has_changed = False

    @property
    def is_alive(self) -> bool:
        """Whether it can still be talked to."""
        return self.conversation.is_alive

    def attend(self, *, closely: bool) -> None:
        """Say whether it has a call now."""
        self.conversation.attend(closely=closely)

    async def suspend(self) -> None:
        """Stop its program between calls. Raises SandboxBroken."""
        await self.conversation.suspend()

    async def resume(self) -> None:
        """Let its program go on. Raises SandboxBroken."""
        await self.conversation.resume()

    async def close(self) -> None:
        """End it."""
        await self.conversation.close()

    def abandon(self) -> None:
        """Let go of it when no event loop is left."""
        self.conversation.abandon()


def _pins(tools: list[dict[str, Any]]) -> dict[str, str]:
    return {str(tool.get("name")): fingerprint(tool) for tool in tools}


async def start_by_lines(
    pool: Pool,
    recipe: Recipe,
    program: Program,
    hosts: HostReach,
    protocol: str = "",
    questions: "Questions | None" = None,
    secrets: tuple[str, ...] = (),
) -> Talk:
    """Start a program and begin to talk with it. Raises `UpstreamFailed`."""
    way_out = WayOut(hosts)
    serve = None if hosts.is_empty else way_out.serve
    try:
        resident = await Resident.start(pool, recipe, program, line_bytes=LINE_BYTES, serve=serve)
    except ResidentOver as over:
        raise ended(over) from over
    return await begun(LineSpeaker(resident, questions, secrets), way_out, protocol, questions=questions)


async def start_by_http(
    url: str,
    hosts: HostReach,
    headers: Headers,
    protocol: str = "",
    access: Access | None = None,
    questions: "Questions | None" = None,
    secrets: tuple[str, ...] = (),
    *,
    begin_s: float | None = None,
) -> Talk:
    """Begin to talk with a server by its address. Raises `UpstreamFailed`."""
    speaker = HttpSpeaker(HttpSession(url, hosts, headers, access, secrets), questions)
    return await begun(speaker, protocol=protocol, begin_s=begin_s, questions=questions)


async def begun(
    speaker: Speaker,
    way_out: WayOut | None = None,
    protocol: str = "",
    begin_s: float | None = None,
    questions: "Questions | None" = None,
) -> Talk:
    """A talk over a speaker; one that cannot be begun is ended."""
    conversation = Conversation(speaker, protocol, questions)
    begin_s = BEGIN_SECONDS if begin_s is None else begin_s
    try:
        async with asyncio.timeout(begin_s):
            await conversation.begin()
            return Talk(conversation, await conversation.list_tools(), way_out)
    except TimeoutError:
        await conversation.close()
        raise UpstreamFailed(f"it did not say what it has in {begin_s:.0f} s") from None
    except BaseException:
        await conversation.close()
        raise
