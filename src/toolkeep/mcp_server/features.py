"""The host's own resources, prompts, completion and logging; each is disabled until one is registered.

The host's own code provides them, to every client alike. They are not tools: no policy is evaluated and
nothing is written to the audit log. Do not serve data that only some agents may read through them. Those of
upstream servers are in `upstream_items`.
"""

import base64
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from toolkeep.limits import MCP_COMPLETIONS
from toolkeep.mcp_protocol.jsonrpc import INVALID_PARAMS, NOT_FOUND_BEFORE_2026, ProtocolError

Reader = Callable[..., "Awaitable[str | bytes] | str | bytes"]
Prompter = Callable[..., "Awaitable[list[dict[str, Any]]] | list[dict[str, Any]]"]
Completer = Callable[[dict[str, Any], str, str, Mapping[str, str]], "Awaitable[list[str]] | list[str]"]
"""Takes the `ref` of a prompt or resource, the argument, its text so far, and the arguments already set."""


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """Readable content under a URI or a URI template."""

    uri: str
    name: str
    read: Reader
    description: str = ""
    mime_type: str = "text/plain"

    @property
    def is_template(self) -> bool:
        """Whether the URI has placeholders."""
        return "{" in self.uri

    def match(self, uri: str) -> dict[str, str] | None:
        """Match a URI against the template; returns the values of its placeholders."""
        parts = re.split(r"\{(\w+)\}", self.uri)
        pattern = "".join(
            # A placeholder stands for one segment without a slash. It may still be `..`: a reader that opens
            # files must check the value.
            re.escape(part) if index % 2 == 0 else f"(?P<{part}>[^/]+)"
            for index, part in enumerate(parts)
        )
        found = re.fullmatch(pattern, uri)
        return None if found is None else found.groupdict()

    def to_dict(self) -> dict[str, Any]:
        """The entry in `resources/list`."""
        key = "uriTemplate" if self.is_template else "uri"
        return {
            key: self.uri,
            "name": self.name,
            "description": self.description,
            "mimeType": self.mime_type,
        }


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt template; `arguments` maps names to descriptions, all of them required."""

    name: str
    messages: Prompter
    description: str = ""
    arguments: Mapping[str, str] = msgspec.field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The entry in `prompts/list`."""
        arguments = [
            {"name": name, "description": meaning, "required": True}
            for name, meaning in self.arguments.items()
        ]
        return {"name": self.name, "description": self.description, "arguments": arguments}


def not_found(uri: str, *, is_modern: bool) -> ProtocolError:
    """The error of a resource that does not exist, or not for this agent."""
    code = INVALID_PARAMS if is_modern else NOT_FOUND_BEFORE_2026
    return ProtocolError(code, "Resource not found", {"uri": uri})


class Features:
    """The features of a server besides tools."""

    def __init__(self) -> None:
        self.resources: dict[str, Resource] = {}
        self.prompts: dict[str, Prompt] = {}
        self.completer: Completer | None = None
        self.has_logging = False

    def capabilities(self, *, is_modern: bool) -> dict[str, Any]:
        """The capabilities to declare to a client."""
        found: dict[str, Any] = {}
        if self.resources:
            found["resources"] = {"subscribe": True, "listChanged": True}
        if self.prompts:
            found["prompts"] = {"listChanged": True}
        if self.completer is not None:
            found["completions"] = {}
        if self.has_logging and not is_modern:
            found["logging"] = {}
        return found

    def list_resources(self) -> dict[str, Any]:
        """`resources/list`."""
        return {"resources": [one.to_dict() for one in self.resources.values() if not one.is_template]}

    def list_templates(self) -> dict[str, Any]:
        """`resources/templates/list`."""
        return {"resourceTemplates": [one.to_dict() for one in self.resources.values() if one.is_template]}

    async def read_resource(self, params: dict[str, Any], *, is_modern: bool) -> dict[str, Any]:
        """`resources/read`."""
        uri = params.get("uri")
        if not isinstance(uri, str):
            raise ProtocolError(INVALID_PARAMS, "uri must be text")
        resource, parts = self._find(uri, is_modern=is_modern)
        body = resource.read(**parts)
        body = await body if inspect.isawaitable(body) else body
        content = (
            {"blob": base64.b64encode(body).decode()} if isinstance(body, bytes) else {"text": str(body)}
        )
        return {"contents": [{"uri": uri, "mimeType": resource.mime_type, **content}]}

    def has_resource(self, uri: str) -> bool:
        """Whether the host has registered a resource for the URI, or a template that it matches."""
        return self._match(uri) is not None

    def _find(self, uri: str, *, is_modern: bool) -> tuple[Resource, dict[str, str]]:
        if (found := self._match(uri)) is not None:
            return found
        raise not_found(uri, is_modern=is_modern)

    def _match(self, uri: str) -> tuple[Resource, dict[str, str]] | None:
        if (found := self.resources.get(uri)) is not None and not found.is_template:
            return found, {}
        for one in self.resources.values():
            if one.is_template and (parts := one.match(uri)) is not None:
                return one, parts
        return None

    def list_prompts(self) -> dict[str, Any]:
        """`prompts/list`."""
        return {"prompts": [one.to_dict() for one in self.prompts.values()]}

    async def get_prompt(self, params: dict[str, Any], arguments: object) -> dict[str, Any]:
        """`prompts/get`."""
        name = params.get("name")
        prompt = self.prompts.get(name) if isinstance(name, str) else None
        if prompt is None:
            raise ProtocolError(INVALID_PARAMS, "There is no such prompt")
        given = {} if arguments is None else arguments
        if not isinstance(given, dict) or not all(isinstance(one, str) for one in given.values()):
            raise ProtocolError(INVALID_PARAMS, "arguments must be an object of texts")
        if missing := [one for one in prompt.arguments if one not in given]:
            raise ProtocolError(INVALID_PARAMS, f"Missing arguments: {', '.join(missing)}")
        # Only declared names are passed on: a client cannot set other parameters of the host's function.
        messages = prompt.messages(**{one: given[one] for one in prompt.arguments})
        messages = await messages if inspect.isawaitable(messages) else messages
        return {"description": prompt.description, "messages": messages}

    async def complete(self, params: dict[str, Any]) -> dict[str, Any]:
        """`completion/complete`."""
        reference, argument = params.get("ref"), params.get("argument")
        if not isinstance(reference, dict) or not isinstance(argument, dict) or self.completer is None:
            raise ProtocolError(INVALID_PARAMS, "ref and argument must be objects")
        name, typed = argument.get("name"), argument.get("value")
        context = params.get("context")
        given = context.get("arguments") if isinstance(context, dict) else None
        if not isinstance(name, str) or not isinstance(typed, str):
            raise ProtocolError(INVALID_PARAMS, "argument.name and argument.value must be text")
        values = self.completer(reference, name, typed, given if isinstance(given, dict) else {})
        values = await values if inspect.isawaitable(values) else values
        shown = list(values)[:MCP_COMPLETIONS]
        has_more = len(values) > len(shown)
        return {"completion": {"values": shown, "total": len(values), "hasMore": has_more}}
