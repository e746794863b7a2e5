"""A conversation with one MCP server: which era it speaks, which tools it has, and calls of them.

The handshake of the older era is tried first, since nearly every server knows it; one that knows only the
newer era says so, and is then spoken to without one. Lists are followed page by page within bounds.
"""

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

from toolkeep.limits import DEFINITION_FILE_BYTES
from toolkeep.sources.mcp.speaking import Progress, Speaker, UpstreamError, UpstreamFailed
from toolkeep.sources.mcp.wishes import answers_to
from toolkeep.wire.era import (
    CAPABILITIES_KEY,
    CLIENT_KEY,
    HANDSHAKE_VERSIONS,
    MODERN_VERSIONS,
    SERVER_KEY,
    VERSION_KEY,
)
from toolkeep.wire.messages import INVALID_PARAMS, METHOD_NOT_FOUND, UNSUPPORTED_VERSION, encode
from toolkeep.wire.mirrored import mirrored
from toolkeep.wording import excerpt

if TYPE_CHECKING:
    from toolkeep.sources.mcp.noting import UnderWay
    from toolkeep.sources.mcp.questions import Questions

PAGES: Final = 200
TOOLS: Final = 2_000
"""Tools of one server that are looked at."""
LIST_BYTES: Final = DEFINITION_FILE_BYTES
"""Of all pages together: what is taken over is kept in a file."""

ROUNDS: Final = 4
"""How often a server may ask for input before a call is given up."""

_CURSOR_CHARS: Final = 4_096
_NOT_OF_THIS_ERA: Final = frozenset({METHOD_NOT_FOUND, UNSUPPORTED_VERSION, INVALID_PARAMS})


class Conversation:
    """One server that is ready to be asked."""

    def __init__(self, speaker: Speaker, protocol: str = "", questions: "Questions | None" = None) -> None:
        """`protocol` is the version that it is known to speak, where it is known.

        `questions` of it may be put to somebody; where they are not, it is told that nobody is asked.
        """
        self._speaker = speaker
        self._questions = questions
        self._is_answered = questions is not None and questions.has_answerer
        self._capabilities: dict[str, Any] = {"elicitation": {}} if self._is_answered else {}
        """What we say that we can do: of questions, forms alone."""
        self._version = ""
        self._protocol = protocol
        self._schemas: dict[str, Any] = {}
        """What calls of each tool take, for arguments that headers repeat."""
        self.server: dict[str, str] = {}
        """Who it says that it is: name and version, cleaned. Nothing is decided by it."""

    @property
    def is_alive(self) -> bool:
        """Whether it can still be talked to."""
        return self._speaker.is_alive

    def attend(self, *, closely: bool) -> None:
        """Say whether it has a call now."""
        self._speaker.attend(closely=closely)

    async def suspend(self) -> None:
        """Stop its program between calls. Raises SandboxBroken."""
        await self._speaker.suspend()

    async def resume(self) -> None:
        """Let its program go on. Raises SandboxBroken."""
        await self._speaker.resume()

    async def close(self) -> None:
        """End it."""
        if self._questions is not None:
            self._questions.close()
        await self._speaker.close()

    def abandon(self) -> None:
        """Let go of it when no event loop is left."""
        self._speaker.abandon()

    def take_change(self) -> bool:
        """Whether the server said since the last time that its tools are others by now."""
        return self._speaker.take_change()

    async def begin(self) -> None:
        """Find out which era the server speaks. Raises `UpstreamFailed`."""
        if self._protocol in MODERN_VERSIONS:
            await self._begin_modern()
            return
        wanted = {
            "protocolVersion": self._protocol or HANDSHAKE_VERSIONS[-1],
            "capabilities": self._capabilities,
            "clientInfo": _us(),
        }
        try:
            said = await self._speaker.request("initialize", wanted)
        except UpstreamError as error:
            if error.code not in _NOT_OF_THIS_ERA or self._protocol:
                raise
            await self._begin_modern()
            return
        version = said.get("protocolVersion") if isinstance(said, dict) else None
        if version not in HANDSHAKE_VERSIONS:
            raise UpstreamFailed("it speaks a version of MCP that is not known here")
        self._version = str(version)
        self.server = _who(said.get("serverInfo"))
        self._speaker.settle(self._version)
        await self._speaker.notify("notifications/initialized")

    async def _begin_modern(self) -> None:
        self._version = MODERN_VERSIONS[-1]
        self._speaker.settle(self._version)
        try:
            said = await self._ask("server/discover", {})
        except UpstreamError as error:
            if not _speaks(error, self._version):
                raise
            said = await self._ask("server/discover", {})
        meta = said.get("_meta")
        self.server = _who(meta.get(SERVER_KEY) if isinstance(meta, dict) else None) or _who(
            said.get("serverInfo")
        )

    async def list_tools(self) -> list[dict[str, Any]]:
        """Every tool of the server, as it describes them; raises `UpstreamFailed` for a list without end."""
        found: list[dict[str, Any]] = []
        size = 0
        seen: set[str] = set()
        cursor: str | None = None
        for _ in range(PAGES):
            page = await self._ask("tools/list", {} if cursor is None else {"cursor": cursor})
            tools = page.get("tools")
            if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
                raise UpstreamFailed("its list of tools is no list of objects")
            size += len(encode(tools))
            if size > LIST_BYTES:
                raise UpstreamFailed(f"its list of tools has more than {LIST_BYTES} bytes")
            found += tools
            cursor = page.get("nextCursor")
            if cursor is None:
                self._schemas = {str(tool.get("name")): tool.get("inputSchema") for tool in found}
                return found
            if not isinstance(cursor, str) or len(cursor) > _CURSOR_CHARS or cursor in seen:
                raise UpstreamFailed(
                    "its list of tools leads in a circle, or has pages that cannot be asked for"
                )
            seen.add(cursor)
            if len(found) > TOOLS:
                break
        raise UpstreamFailed(f"its list of tools has more than {TOOLS} entries or {PAGES} pages")

    async def call(
        self, tool: str, arguments: dict[str, Any], call: "UnderWay", on_progress: Progress | None = None
    ) -> dict[str, Any]:
        """What the server answers to a call; raises `UpstreamFailed`. Only meanwhile it may ask something."""
        if self._is_answered:
            await self._speaker.listen()
        with self._questions.during_call(call) if self._questions is not None else nullcontext():
            return await self._called(tool, arguments, on_progress)

    async def _called(
        self, tool: str, arguments: dict[str, Any], on_progress: Progress | None
    ) -> dict[str, Any]:
        """A server of the newer era that asks for input is told, mostly no, and may answer then (POL-4)."""
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        for _ in range(ROUNDS):
            said = await self._ask("tools/call", params, on_progress)
            is_modern = self._version in MODERN_VERSIONS
            told = await answers_to(said, self._questions) if is_modern else None
            if told is None:
                return said
            params = {"name": tool, "arguments": arguments, **told}
        raise UpstreamFailed(f"it asked for input {ROUNDS} times, and was told each time", is_over=False)

    async def _ask(
        self, method: str, params: dict[str, Any], on_progress: Progress | None = None
    ) -> dict[str, Any]:
        headers: dict[str, str] = {}
        if self._version in MODERN_VERSIONS:
            meta = {VERSION_KEY: self._version, CAPABILITIES_KEY: self._capabilities, CLIENT_KEY: _us()}
            params = {**params, "_meta": meta}
            schema = self._schemas.get(str(params.get("name"))) if method == "tools/call" else None
            headers = mirrored(schema, params["arguments"]) if isinstance(schema, dict) else {}
        said = await self._speaker.request(method, params, on_progress, headers)
        if not isinstance(said, dict):
            raise UpstreamFailed(f"its answer to {method} is no object")
        return said


def _speaks(error: UpstreamError, version: str) -> bool:
    """Whether a server refused a version that it says it speaks: it is asked once more."""
    supported = error.data.get("supported") if isinstance(error.data, dict) else None
    return error.code == UNSUPPORTED_VERSION and isinstance(supported, list) and version in supported


def _us() -> dict[str, str]:
    from toolkeep import __version__

    return {"name": "toolkeep", "version": __version__}


def _who(said: Any) -> dict[str, str]:
    if not isinstance(said, dict):
        return {}
    return {
        key: excerpt(value, 100) for key in ("name", "version") if isinstance(value := said.get(key), str)
    }
