"""A keep's side of a conversation: export tools for an agent, read the calls of a response, write the
results."""

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from toolkeep.calls import RegisteredTool, ToolResult, Unreadable
from toolkeep.errors import Code, ResponseUnreadable, ToolkeepError
from toolkeep.limits import BATCH_CALLS, DEFAULT_LIMITS, STRICT_CHOICE_BYTES
from toolkeep.providers.aliases import looks_like_an_alias, names_by_alias
from toolkeep.providers.export import PLAIN_EXPORT, Exported, Omitted, Options, Prepared, gathered, prepare
from toolkeep.providers.model_turn import ModelCall, Turn
from toolkeep.providers.replies import reply_to
from toolkeep.providers.response_reader import data_of
from toolkeep.providers.schema_losses import Losses, NotExpressible
from toolkeep.providers.stream_assembly import StreamTooLong
from toolkeep.providers.strict.codec import StrictCodec
from toolkeep.providers.strict.nodes import Undecodable
from toolkeep.providers.typed_views import for_typed_views
from toolkeep.providers.vendor import Vendor
from toolkeep.providers.vendor_registry import vendor_of
from toolkeep.validation.parse import NotStrictJson, parse_json_fully

Events = Iterable[Any] | AsyncIterable[Any]


class Answers(list[dict[str, Any]]):
    """The messages that answer the calls of a response, with the result of each call in order."""

    def __init__(self, messages: Iterable[dict[str, Any]], results: Sequence[ToolResult]) -> None:
        super().__init__(messages)
        self.results = tuple(results)
        """The `ToolResult` of each call: its id, value or error, and timings."""


class ProviderHost(Protocol):
    """What is needed of a keep."""

    @property
    def has_typed_views(self) -> bool:
        """Whether models are shown references to texts."""

    def has_agent(self, name: str) -> bool:
        """Whether an agent of that name was declared."""

    def tools(self, *, enabled: bool | None = None, agent: str | None = None) -> list[RegisteredTool]:
        """The tools that an agent may see."""

    def offered_tools(self, *, agent: str) -> list[RegisteredTool]:
        """The tools that an agent may see and could call."""

    def look_up(self, name: str, *, agent: str) -> RegisteredTool | None:
        """The tool of that name, if the agent may see it."""

    async def call_all(self, calls: Sequence[Mapping[str, Any]]) -> list[ToolResult]:
        """Several calls."""


class KeepProvider:
    """Exports and answers for one keep; prepares each definition once."""

    def __init__(self, keep: ProviderHost) -> None:
        self._keep = keep
        self._prepared: dict[tuple[str, bool, str, str], Prepared | Omitted] = {}
        self._codecs: dict[tuple[str, str], StrictCodec | None] = {}

    def tools_for(self, provider: str, *, agent: str, options: Options = PLAIN_EXPORT) -> Exported:
        """The tools that an agent may see, in the provider's format."""
        vendor = vendor_of(provider)
        if not self._keep.has_agent(agent):
            message = f"no agent is called {agent[:80]!r}"
            raise ToolkeepError(Code.AGENT_UNKNOWN, message, hint="declare it with keep.declare_agent")
        tools = self._keep.offered_tools(agent=agent)
        return gathered([self._prepare(tool, vendor, options) for tool in tools], vendor, options)

    def _prepare(self, tool: RegisteredTool, vendor: Vendor, options: Options) -> Prepared | Omitted:
        key = (vendor.profile.name, options.strict, tool.name, tool.definition_hash)
        found = self._prepared.get(key)
        if found is None:
            if len(self._prepared) > 10 * BATCH_CALLS:
                self._prepared.clear()
            shown = for_typed_views(tool) if self._keep.has_typed_views else tool
            found = self._prepared[key] = prepare(shown, vendor, strict=options.strict)
        return found

    def read(self, provider: str, response: Any) -> Turn:
        """The calls of a whole response; one that was read already is returned."""
        if isinstance(response, Turn):
            return response
        data, vendor = data_of(response, provider), vendor_of(provider)
        if missing := vendor.missing(data):
            raise ResponseUnreadable(provider, f"it has no '{missing}'")
        with _bounded(provider):
            return vendor.read(data)

    async def read_stream(self, provider: str, events: Events) -> Turn:
        """The calls of a stream, read to its end."""
        vendor = vendor_of(provider)
        if vendor.stream is None:
            raise ResponseUnreadable(provider, "it has no streams")
        reader = vendor.stream()
        fed = known = 0
        with _bounded(provider):
            async for event in _each(events):
                data = data_of(event, provider)
                fed, known = fed + 1, known + vendor.is_event(data)
                reader.feed(data)
        if fed and not known:
            raise ResponseUnreadable(provider, "none of the events is one of its streams")
        return reader.turn()

    async def answer(
        self, provider: str, turn: Turn, who: Mapping[str, Any], *, correlation_id: str, strict: bool
    ) -> Answers:
        """Make every call of a turn, and answer each exactly once; `who` are options of every call.

        Without a correlation id of the caller, a call has the id that the provider gave to it.
        """
        vendor, agent = vendor_of(provider), str(who["agent"])
        names = self._names_of(turn, vendor, agent)
        made = [
            {
                "name": name,
                "arguments": self._arguments(call, name, vendor, agent, strict=strict),
                **who,
                "correlation_id": correlation_id or call.id,
            }
            for call, name in zip(turn.calls, names, strict=True)
        ]
        results: list[ToolResult] = []
        for start in range(0, len(made), BATCH_CALLS):
            results += await self._keep.call_all(made[start : start + BATCH_CALLS])
        replies = [
            reply_to(call, result, self._definition(name, agent))
            for call, name, result in zip(turn.calls, names, results, strict=True)
        ]
        return Answers(vendor.write(replies), results)

    def _names_of(self, turn: Turn, vendor: Vendor, agent: str) -> list[str]:
        """The tools that the calls name; all tools are searched at most once."""
        called = [call.name for call in turn.calls]
        if not any(map(looks_like_an_alias, called)):
            return called
        tools = self._keep.tools(enabled=True, agent=agent)
        known = names_by_alias((tool.name for tool in tools), vendor.profile)
        return [known.get(name, name) for name in called]

    def _definition(self, name: str, agent: str) -> Any:
        tool = self._keep.look_up(name, agent=agent)
        return tool.definition if tool is not None else None

    def _arguments(
        self, call: ModelCall, name: str, vendor: Vendor, agent: str, *, strict: bool
    ) -> bytes | dict[str, Any] | Unreadable:
        if call.unfinished:
            message = f"the call was not run: {call.unfinished}"
            return Unreadable(Code.CALL_UNFINISHED, message, "make the whole call again")
        is_strict = strict or vendor.profile.is_always_strict
        codec = self._codec(name, agent) if is_strict and vendor.profile.strict == "codec" else None
        if codec is None:
            return call.arguments
        try:
            return _decoded(codec, call.arguments)
        except Undecodable as error:
            return Unreadable(Code.NOT_JSON, f"the arguments cannot be read: {error.reason}", error.fix)

    def _codec(self, name: str, agent: str) -> StrictCodec | None:
        """The strict codec of a tool; None if it has none and was sent as it is."""
        tool = self._keep.look_up(name, agent=agent)
        if tool is None:
            return None
        key = (tool.name, tool.definition_hash)
        if key not in self._codecs:
            if len(self._codecs) > 10 * BATCH_CALLS:
                self._codecs.clear()
            try:
                self._codecs[key] = StrictCodec(tool.definition, Losses(tool.name))
            except NotExpressible:
                self._codecs[key] = None
        return self._codecs[key]


async def _each(events: Events) -> AsyncIterator[Any]:
    if isinstance(events, AsyncIterable):
        async for event in events:
            yield event
    else:
        for event in events:
            yield event


@contextmanager
def _bounded(provider: str) -> Iterator[None]:
    """If there are more calls than a turn may have, none is made: a partial answer would hide which ones
    ran."""
    try:
        yield
    except StreamTooLong as error:
        raise ResponseUnreadable(provider, str(error)) from error


def _decoded(codec: StrictCodec, arguments: bytes | dict[str, Any]) -> bytes | dict[str, Any]:
    """The arguments in the tool's own form; invalid JSON is left for validation to refuse."""
    written: Any = arguments
    if isinstance(arguments, bytes):
        if len(arguments) > DEFAULT_LIMITS.argument_bytes:
            return arguments
        if codec.has_choices and len(arguments) > STRICT_CHOICE_BYTES:
            raise Undecodable(f"they are longer than {STRICT_CHOICE_BYTES} bytes", "send less")
        try:
            written = parse_json_fully(arguments, depth=DEFAULT_LIMITS.argument_depth)
        except NotStrictJson:
            return arguments
    decoded = codec.decode(written)
    return decoded if isinstance(decoded, dict) else arguments
