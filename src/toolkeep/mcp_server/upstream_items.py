"""Prompts and resources of upstream MCP servers, as one agent may use them (MCP-4).

Each `prompts/get` and `resources/read` is a call of the keep, of its own kind: validated, authorized,
approved, limited and recorded like a call of a tool. An agent that holds nothing of it is not told that there
is any.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from toolkeep.calls import PermittedCall, Refusal, RegisteredTool, ToolCall, ToolResult
from toolkeep.definitions.tool_names import with_kind
from toolkeep.definitions.vocabulary import CallKind
from toolkeep.errors import Code
from toolkeep.json_values.frozen import thaw
from toolkeep.keep.keep import Keep
from toolkeep.limits import MCP_PAGE
from toolkeep.mcp_protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    OVERLOADED,
    ProtocolError,
)
from toolkeep.mcp_protocol.resource_uris import namespaced, split_namespaced
from toolkeep.mcp_server.features import not_found

_NUMBERS: Final = {
    **dict.fromkeys((Code.QUEUE_FULL, Code.RATE_LIMITED, Code.CIRCUIT_OPEN), OVERLOADED),
    **dict.fromkeys((Code.NOT_PERMITTED, Code.APPROVAL_NEEDED, Code.APPROVAL_DENIED), INVALID_REQUEST),
    **dict.fromkeys(
        (Code.REQUIRED_MISSING, Code.WRONG_TYPE, Code.CONSTRAINT, Code.ARGUMENTS_TOO_BIG), INVALID_PARAMS
    ),
}
"""The error of the protocol for a refusal; every other one is an internal error."""
_MISSING: Final = frozenset(
    (Code.UNKNOWN_TOOL, Code.TOOL_DISABLED, Code.TOOL_QUARANTINED, Code.NOTHING_THERE)
)


class Wanted(NamedTuple):
    """A prompt or resource that a request names, and the arguments of the call."""

    tool: RegisteredTool
    arguments: dict[str, Any]


class UpstreamItems:
    """Lists and finds what upstream servers pass on beside their tools."""

    def __init__(self, keep: Keep) -> None:
        self._keep = keep
        self._given: set[tuple[str, str]] = set()
        """Lists and agents that were given one."""

    def concerned(self, of: str, agents: set[str]) -> set[str]:
        """The agents that were given a list of `prompts` or `resources`, or have one now."""
        kind = CallKind.PROMPT if of == "prompts" else CallKind.RESOURCE
        return {agent for agent in agents if (of, agent) in self._given or self.has_any(kind, agent)}

    def has_any(self, kind: CallKind, agent: str) -> bool:
        """Whether an agent could use any."""
        return bool(self._offered(kind, agent))

    def prompts(self, agent: str, cursor: object, hidden: Iterable[str]) -> tuple[list[dict[str, Any]], str]:
        """A page of `prompts/list`, without names of the host's own prompts, and the next cursor."""
        own = set(hidden)
        self._given.add(("prompts", agent))
        found = [tool for tool in self._offered(CallKind.PROMPT, agent) if prompt_name(tool) not in own]
        shown, following = _page(found, cursor)
        return [_prompt_data(tool) for tool in shown], following

    def resources(
        self, agent: str, cursor: object, *, are_templates: bool
    ) -> tuple[list[dict[str, Any]], str]:
        """A page of `resources/list` or `resources/templates/list`, and the next cursor."""
        self._given.add(("resources", agent))
        found = [t for t in self._offered(CallKind.RESOURCE, agent) if _is_template(t) is are_templates]
        shown, following = _page(found, cursor)
        return [_resource_data(tool) for tool in shown], following

    def find_prompt(self, name: object, agent: str, arguments: object) -> Wanted:
        """The prompt of a name; raises `ProtocolError`."""
        for tool in self._keep.tools(kind=CallKind.PROMPT, agent=agent):
            if prompt_name(tool) == name:
                if not isinstance(arguments, dict | None):
                    raise ProtocolError(INVALID_PARAMS, "arguments must be an object of texts")
                return Wanted(tool, arguments or {})
        raise ProtocolError(INVALID_PARAMS, "There is no such prompt")

    def find_resource(self, uri: str, agent: str, *, is_modern: bool) -> Wanted:
        """The resource of a URI, or the template that it is an expansion of; raises `ProtocolError`."""
        import re2

        upstream, own = split_namespaced(uri) or ("", "")
        tools = [
            tool
            for tool in self._keep.tools(kind=CallKind.RESOURCE, agent=agent)
            if tool.definition.source.origin == upstream
        ]
        exact = (tool for tool in tools if _uri_schema(tool).get("const") == own)
        # Enabled ones first: a quarantined template must not hide another one.
        templates = sorted(
            (tool for tool in tools if _is_template(tool)), key=lambda tool: not tool.is_enabled
        )
        # A linear engine: the server chose the template, the client the URI.
        matching = (tool for tool in templates if re2.fullmatch(_uri_schema(tool)["pattern"], own))
        found = next(exact, None) or next(matching, None)
        if found is None:
            raise not_found(uri, is_modern=is_modern)
        return Wanted(found, {"uri": own})

    def find_completion(self, params: Mapping[str, Any], agent: str) -> Wanted | None:
        """The completion of an argument of an upstream's prompt or template; None for the host's own."""
        reference, argument = params.get("ref"), params.get("argument")
        if not isinstance(reference, dict) or not isinstance(argument, dict):
            raise ProtocolError(INVALID_PARAMS, "ref and argument must be objects")
        item = self._referred(reference, agent)
        tool = None if item is None else self._companion(CallKind.COMPLETION, item, agent)
        if item is None or tool is None:
            return None
        context = params.get("context")
        given = context.get("arguments") if isinstance(context, dict) else None
        of = with_kind(item.definition.kind, item.runner.target["tool"])
        arguments = {"of": of, "argument": argument.get("name"), "value": argument.get("value")}
        return Wanted(tool, {**arguments, "arguments": given} if given else arguments)

    def _referred(self, reference: Mapping[str, Any], agent: str) -> RegisteredTool | None:
        """The prompt or template that an agent refers to, if it could use it."""
        if reference.get("type") == "ref/prompt":
            prompts = self._offered(CallKind.PROMPT, agent)
            return next((tool for tool in prompts if prompt_name(tool) == reference.get("name")), None)
        upstream, template = split_namespaced(str(reference.get("uri"))) or ("", "")
        for tool in self._offered(CallKind.RESOURCE, agent) if upstream else ():
            if _is_template(tool) and (tool.definition.source.origin, tool.runner.target["tool"]) == (
                upstream,
                template,
            ):
                return tool
        return None

    def find_subscription(self, uri: str, agent: str, *, is_modern: bool) -> Wanted:
        """The subscription to a resource that an agent may read now; raises `ProtocolError`."""
        wanted = self.find_resource(uri, agent, is_modern=is_modern)
        tool = self._companion(CallKind.SUBSCRIPTION, wanted.tool, agent)
        if tool is None or not self._may_read(wanted, agent):
            raise not_found(uri, is_modern=is_modern)
        return Wanted(tool, wanted.arguments)

    def _companion(self, kind: CallKind, item: RegisteredTool, agent: str) -> RegisteredTool | None:
        """The offer of an item's upstream to complete, or to subscribe, if it is for this item."""
        target = item.runner.target
        for tool in self._offered(kind, agent):
            is_same = tool.definition.source.origin == item.definition.source.origin
            if is_same and target["tool"] in tool.runner.target["items"].get(target["list"], ()):
                return tool
        return None

    def _may_read(self, wanted: Wanted, agent: str) -> bool:
        """Whether policies permit to read a resource, be it after a person has agreed."""
        name = wanted.tool.name
        checked = self._keep.try_validate_arguments(name, wanted.arguments, agent=agent)
        if isinstance(checked, Refusal) or not wanted.tool.is_enabled:
            return False
        request = ToolCall(id="subscribe", tool=name, arguments=None, agent=agent)
        outcome = self._keep.authorizer.authorize(request, checked)
        for one in outcome.touched if isinstance(outcome, PermittedCall) else ():
            one.close()
        return isinstance(outcome, PermittedCall)

    def _offered(self, kind: CallKind, agent: str) -> list[RegisteredTool]:
        return sorted(self._keep.offered_tools(agent=agent, kind=kind), key=lambda tool: tool.name)


def value_of(result: ToolResult, *, is_modern: bool, uri: str = "") -> dict[str, Any]:
    """The answer to `prompts/get` or `resources/read`; raises `ProtocolError` for a call without a result."""
    if result.error is None and result.truncation is None:
        return dict(result.value)
    if result.error is None and result.truncation is not None:
        raise ProtocolError(INTERNAL_ERROR, f"It has {result.truncation.full_bytes} bytes, which is too much")
    code = result.code
    if code in _MISSING:
        known = not_found(uri, is_modern=is_modern or not uri)
        text = result.error.errors[0].message if code is Code.NOTHING_THERE and result.error else result.text
        raise ProtocolError(known.code, text, known.data)
    about = {"code": code.value if code else "", "correlationId": result.correlation_id}
    number = _NUMBERS.get(code, INTERNAL_ERROR) if code else INTERNAL_ERROR
    raise ProtocolError(number, result.text, about)


def prompt_name(tool: RegisteredTool) -> str:
    """The name of a prompt for clients."""
    return tool.name.partition(":")[2]


def _page(tools: list[RegisteredTool], cursor: object) -> tuple[list[RegisteredTool], str]:
    """The cursor is the last name shown, so pages stay stable while the list changes."""
    if cursor is not None and not isinstance(cursor, str):
        raise ProtocolError(INVALID_PARAMS, "cursor must be a string")
    rest = [tool for tool in tools if cursor is None or tool.name > cursor]
    shown = rest[:MCP_PAGE]
    return shown, shown[-1].name if len(rest) > len(shown) else ""


def _prompt_data(tool: RegisteredTool) -> dict[str, Any]:
    parameters: Mapping[str, Any] = thaw(tool.definition.parameters)
    required = parameters.get("required", ())
    arguments = [
        {"name": name, **_stated(about, "title", "description"), "required": name in required}
        for name, about in parameters.get("properties", {}).items()
    ]
    described = _stated({"description": tool.definition.description, **parameters}, "title", "description")
    return {"name": prompt_name(tool), **described, "arguments": arguments}


def _resource_data(tool: RegisteredTool) -> dict[str, Any]:
    definition, about = tool.definition, _uri_schema(tool)
    uri = namespaced(definition.source.origin, about["description"])
    data = {
        "uriTemplate" if _is_template(tool) else "uri": uri,
        "name": about.get("title") or tool.name.partition(":")[2],
        **_stated(definition.parameters, "title"),
        "description": definition.description,
        "mimeType": definition.metadata.get("mime_type"),
    }
    return {key: value for key, value in data.items() if value}


def _uri_schema(tool: RegisteredTool) -> Mapping[str, Any]:
    about: Mapping[str, Any] = tool.definition.properties["uri"]
    return about


def _is_template(tool: RegisteredTool) -> bool:
    return "pattern" in _uri_schema(tool)


def _stated(found: Mapping[str, Any], *keys: str) -> dict[str, str]:
    return {key: found[key] for key in keys if found.get(key)}
