"""Tools over HTTP: list, show, validate a call, enable and disable.

A caller sees the tools that its agent may see; the scope `admin` sees all. Secret parts of a schema are shown
to nobody, whatever the scopes (VAL-6); only the form of a stored definition has them, for `admin`.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, get_args

import msgspec

from toolkeep.authoring.declaration_advice import declaration
from toolkeep.calls import CheckedCall, Refusal, RegisteredTool
from toolkeep.compat.definition_diff import Change, changes_between, data_changes, verdict
from toolkeep.definitions.redacted_schema import public_schema, without_secrets
from toolkeep.definitions.tool import SourceKind, ToolDefinition
from toolkeep.definitions.vocabulary import Category, Danger, ToolState
from toolkeep.errors import DefinitionInvalid
from toolkeep.keep.keep import Keep
from toolkeep.providers.single_tool import lone_definition
from toolkeep.providers.vendor_registry import PROVIDERS
from toolkeep.server.api.common_parameters import CURSOR, LIMIT, NAME, NONE_MATCH, TAG
from toolkeep.server.api.pagination import Page, cut, decode_cursor
from toolkeep.server.http.bearer_auth import Caller
from toolkeep.server.http.problem_details import not_found, of_refusal, problem
from toolkeep.server.http.request import Parameter, Request, read_raw
from toolkeep.server.http.responses import Response, json_response, tag_of, tagged
from toolkeep.server.http.route_table import ResponseSpec, Route
from toolkeep.server.service import Service, sees_as
from toolkeep.stores.api_tokens import Scope


class ToolSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A tool in a list."""

    name: str
    version: str
    description: str
    category: str
    risk: str
    danger: str
    state: str
    why: str
    provider: str
    source: str
    is_built_in: bool
    is_custom: bool
    requires_confirmation: bool
    definition_hash: str


class VersionView(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a tool, and how it differs from the one before it."""

    version: str
    state: str
    why: str
    definition_hash: str
    changes: list[dict[str, str]] = []


class ToolView(msgspec.Struct, frozen=True, kw_only=True):
    """One tool whole."""

    tool: ToolSummary
    signature: str
    definition: dict[str, Any]
    versions: list[VersionView]
    warnings: list[dict[str, str]]
    declaration: str
    """The line that declares its side effects, where none says what they are."""
    tag: str
    """The entity tag: what If-Match must say to change it."""


class ToolPage(Page, frozen=True, kw_only=True):
    """Some of the tools."""

    items: list[ToolSummary]


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """Which tools of a list are wanted."""

    category: str | None = None
    danger: str | None = None
    state: str | None = None
    source: str | None = None
    search: str | None = None


def summary(tool: RegisteredTool) -> ToolSummary:
    """A tool as shown in a list."""
    definition = tool.definition
    return ToolSummary(
        name=definition.name,
        version=definition.version,
        description=definition.description,
        category=definition.category.value,
        risk=definition.category.risk,
        danger=definition.danger_level.value,
        state=tool.state.value,
        why=tool.why,
        provider=tool.provider,
        source=definition.source.kind,
        is_built_in=tool.is_built_in,
        is_custom=tool.is_custom,
        requires_confirmation=definition.requires_confirmation,
        definition_hash=tool.definition_hash,
    )


def list_tools(
    keep: Keep,
    caller: Caller,
    filters: Filters,
    *,
    limit: int,
    cursor: str | None = None,
    calls: Mapping[str, int] | None = None,
    is_review_first: bool = False,
) -> Page:
    """The tools that a caller may see and that match; by category and name, or by relevance.

    With `calls`, how often each was called, the most called first. With `is_review_first`, those that wait
    for review before the others.
    """
    found = keep.tools(agent=sees_as(caller))
    if filters.search is not None:
        found = _searched(keep, caller, filters.search, found)
    order = _order(keep, found, filters, calls, is_review_first=is_review_first)
    last = decode_cursor(cursor, order.kind) if cursor else None
    fitting = [tool for tool in _fitting(found, filters) if last is None or order.place(tool) > last]
    ordered = fitting if order.first is None else sorted(fitting, key=order.first)
    return cut(ordered, limit, order.place, summary)


class _Order(NamedTuple):
    """In which order tools are listed."""

    place: Callable[[RegisteredTool], Any]
    """Where a tool stands; a cursor has that of the last one."""
    kind: Any
    """The type of a place."""
    first: Callable[[RegisteredTool], Any] | None = None
    """What they are sorted by; None where they are found in this order."""


def _order(
    keep: Keep,
    found: Sequence[RegisteredTool],
    filters: Filters,
    calls: Mapping[str, int] | None,
    *,
    is_review_first: bool,
) -> _Order:
    if calls is not None:

        def place(tool: RegisteredTool) -> tuple[int, int, str]:
            return (-calls.get(tool.name, 0), *_place(tool))

        return _Order(place, tuple[int, int, str], place)
    if filters.search is not None:
        return _Order(_ranked(found), int)
    if is_review_first:
        waits = {tool.name for tool in found if awaits_review(keep, tool)}
        return _Order(
            lambda tool: (tool.name not in waits, *_place(tool)),
            tuple[bool, int, str],
            (lambda tool: tool.name not in waits) if waits else None,
        )
    return _Order(_place, tuple[int, str])


def awaits_review(keep: Keep, tool: RegisteredTool | ToolSummary) -> bool:
    """Whether a person has to look at a quarantined tool; not if somebody keeps its definition out."""
    return tool.state == ToolState.QUARANTINED and not keep.is_rejected(tool.name)


def _place(tool: RegisteredTool) -> tuple[int, str]:
    return tool.definition.category.number, tool.name


def _ranked(found: Sequence[RegisteredTool]) -> Callable[[RegisteredTool], int]:
    ranks = {id(tool): rank for rank, tool in enumerate(found)}
    return lambda tool: ranks[id(tool)]


def _searched(keep: Keep, caller: Caller, text: str, found: Sequence[RegisteredTool]) -> list[RegisteredTool]:
    """Search results by relevance; then other tools that contain every word or prefix."""
    best = keep.search(text, limit=len(found), agent=sees_as(caller))
    words, known = text.casefold().split(), set(map(id, best))
    others = (tool for tool in found if id(tool) not in known)
    return best + [tool for tool in others if all(word in _words(tool) for word in words)]


def _words(tool: RegisteredTool) -> str:
    return f"{tool.name} {tool.definition.description}".casefold()


def _fitting(found: Iterable[RegisteredTool], filters: Filters) -> list[RegisteredTool]:
    wanted = None if filters.category is None else Category.read(filters.category)
    return [
        tool
        for tool in found
        if (wanted is None or tool.definition.category is wanted)
        and (filters.danger is None or tool.definition.danger_level.value == filters.danger)
        and (filters.state is None or tool.state.value == filters.state)
        and (filters.source is None or tool.definition.source.kind == filters.source)
    ]


def visible_tool(keep: Keep, caller: Caller, name: str) -> RegisteredTool | None:
    """The tool, or `name@version`, if the caller may see it."""
    agent = sees_as(caller)
    return keep.try_get(name) if agent is None else keep.look_up(name, agent=agent)


def find_tool(keep: Keep, caller: Caller, name: str) -> RegisteredTool:
    """As `visible_tool`; what the caller may not see is reported as if it did not exist."""
    found = visible_tool(keep, caller, name)
    if found is None:
        raise not_found("tool")
    return found


def show_tool(keep: Keep, caller: Caller, name: str) -> ToolView:
    """One tool with all details."""
    tool = find_tool(keep, caller, name)
    return ToolView(
        tool=summary(tool),
        signature=tool.arguments.hint(tool.name),
        definition=public_definition(tool),
        versions=versions_of(keep, caller, tool),
        warnings=[warning.to_dict() for warning in tool.warnings],
        declaration=declaration(tool.definition, tool.runner) if tool.is_undeclared else "",
        tag=tag_of_tool(keep, tool),
    )


def list_versions(keep: Keep, caller: Caller, name: str) -> list[VersionView]:
    """Every version of a tool, newest first, with its changes."""
    return versions_of(keep, caller, find_tool(keep, caller, name))


def versions_of(keep: Keep, caller: Caller, tool: RegisteredTool) -> list[VersionView]:
    """The versions of a tool that the caller may see."""
    agent = sees_as(caller)
    family = keep.versions(tool.name)
    if agent is not None:
        family = tuple(
            held for held in family if keep.look_up(f"{held.name}@{held.version}", agent=agent) is held
        )
    older: tuple[RegisteredTool | None, ...] = (*family[1:], None)
    return [_version(held, before) for held, before in zip(family, older, strict=True)]


def _version(tool: RegisteredTool, before: RegisteredTool | None) -> VersionView:
    changes = () if before is None else public_changes(before.definition, tool.definition)
    return VersionView(
        version=tool.version,
        state=tool.state.value,
        why=tool.why,
        definition_hash=tool.definition_hash,
        changes=change_views(changes),
    )


def public_changes(old: ToolDefinition, new: ToolDefinition) -> tuple[Change, ...]:
    """What differs between two definitions; of secret parts only that they do."""
    shown = data_changes(_without_secrets(old), _without_secrets(new))
    told = {(one.field, one.what) for one in shown}
    hidden = [one for one in changes_between(old, new) if (one.field, one.what) not in told]
    return (*shown, Change("parameters", "secret parts changed", verdict(hidden))) if hidden else shown


def _without_secrets(definition: ToolDefinition) -> dict[str, Any]:
    parameters = without_secrets(definition.parameters, is_sensitive=definition.sensitive)
    return {**definition.to_dict(), "parameters": parameters}


def holds_secrets(definition: ToolDefinition) -> bool:
    """Whether its schema has parts that nobody is shown."""
    return _without_secrets(definition) != definition.to_dict()


def change_views(changes: Iterable[Change]) -> list[dict[str, str]]:
    """What differs between two versions, and what each difference means to callers."""
    return [{"field": one.field, "what": one.what, "weight": one.weight.name.lower()} for one in changes]


def public_definition(tool: RegisteredTool) -> dict[str, Any]:
    """A definition without its secret parts."""
    definition = tool.definition
    parameters = public_schema(definition.parameters, is_sensitive=definition.sensitive)
    return {**definition.to_dict(), "parameters": parameters}


def tag_of_tool(keep: Keep, tool: RegisteredTool) -> str:
    """An entity tag that changes with every version and state of the tool."""
    family = keep.versions(tool.name)
    return tag_of(*(f"{held.definition_hash} {held.state.value} {held.why}" for held in family))


def provider_forms(keep: Keep, caller: Caller, name: str) -> dict[str, Any]:
    """A tool in the format of each provider; providers that cannot express it are left out."""
    definition = find_tool(keep, caller, name).definition
    forms = {}
    for provider in PROVIDERS:
        with contextlib.suppress(DefinitionInvalid):
            forms[provider] = lone_definition(definition, provider)
    return forms


def check_call(
    keep: Keep, caller: Caller, name: str, arguments: bytes, conversation: str = ""
) -> CheckedCall | Refusal:
    """Validate the arguments of a call without running it."""
    return keep.try_validate_arguments(name, arguments, agent=caller.agent, conversation=conversation)


def switch_tool(keep: Keep, caller: Caller, name: str, *, enabled: bool) -> ToolView:
    """Enable or disable a tool, also for later starts."""
    tool = find_tool(keep, caller, name)
    change = keep.enable if enabled else keep.disable
    change(name if "@" in name else tool.name, remember=True)
    return show_tool(keep, caller, name)


async def _list_tools(service: Service, request: Request) -> Response:
    query = request.query
    filters = Filters(**{name: query[name] for name in Filters.__struct_fields__})
    page = list_tools(service.keep, request.caller, filters, limit=query["limit"], cursor=query["cursor"])
    return tagged(page, request.header("If-None-Match"))


async def _show_tool(service: Service, request: Request) -> Response:
    view = show_tool(service.keep, request.caller, request.names["name"])
    return tagged(view, request.header("If-None-Match"), view.tag)


async def _list_versions(service: Service, request: Request) -> Response:
    return json_response(list_versions(service.keep, request.caller, request.names["name"]))


async def _forms(service: Service, request: Request) -> Response:
    return json_response(provider_forms(service.keep, request.caller, request.names["name"]))


class ValidateBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call that is only checked."""

    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    conversation: str = ""


class RawValidate(ValidateBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """As `ValidateBody`, with the arguments as they came."""

    arguments: msgspec.Raw = msgspec.Raw(b"{}")  # type: ignore[assignment]  # the same JSON, not parsed


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """A call that fits, with defaults filled in."""

    success: bool
    tool: str
    arguments: dict[str, Any]


async def _validate(service: Service, request: Request) -> Response:
    raw = await request.body()
    body = read_raw(raw, _decoder)
    name = request.names["name"]
    checked = check_call(service.keep, request.caller, name, bytes(body.arguments), body.conversation)
    if isinstance(checked, Refusal):
        return problem(of_refusal(checked))
    return json_response(checked.to_dict())


async def _enable(service: Service, request: Request) -> Response:
    return json_response(await switched(service, request, enabled=True))


async def _disable(service: Service, request: Request) -> Response:
    return json_response(await switched(service, request, enabled=False))


async def switched(service: Service, request: Request, *, enabled: bool) -> ToolView:
    """Enable or disable the tool of a request, in a thread: a shared database may take its time."""
    name = request.names["name"]
    return await asyncio.to_thread(switch_tool, service.keep, request.caller, name, enabled=enabled)


_decoder: Final = msgspec.json.Decoder(RawValidate)

ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/tools",
        name="listTools",
        about="The tools that the token's agent may see; with admin, all.",
        handler=_list_tools,
        scopes=(Scope.TOOLS_READ,),
        tag="tools",
        parameters=(
            Parameter(name="category", about="Only these.", choices=tuple(c.value for c in Category)),
            Parameter(name="danger", about="Only these.", choices=tuple(d.value for d in Danger)),
            Parameter(name="state", about="Only these.", choices=tuple(s.value for s in ToolState)),
            Parameter(name="source", about="Only these.", choices=get_args(SourceKind)),
            Parameter(name="search", about="Search words; best match first.", longest=1024),
            LIMIT,
            CURSOR,
            NONE_MATCH,
        ),
        gives={
            200: ResponseSpec(about="One page.", kind=ToolPage, headers=TAG),
            304: ResponseSpec(about="Not modified.", headers=TAG),
        },
    ),
    Route(
        method="GET",
        path="/v1/tools/{name}",
        name="showTool",
        about="One tool: definition without secrets, signature, versions.",
        handler=_show_tool,
        scopes=(Scope.TOOLS_READ,),
        tag="tools",
        parameters=(NAME, NONE_MATCH),
        gives={
            200: ResponseSpec(about="The tool.", kind=ToolView, headers=TAG),
            304: ResponseSpec(about="Not modified.", headers=TAG),
        },
        problems=(404,),
    ),
    Route(
        method="GET",
        path="/v1/tools/{name}/versions",
        name="listVersions",
        about="The versions of a tool, newest first, with how each differs from the one before.",
        handler=_list_versions,
        scopes=(Scope.TOOLS_READ,),
        tag="tools",
        parameters=(NAME,),
        gives={200: ResponseSpec(about="The versions.", kind=list[VersionView])},
        problems=(404,),
    ),
    Route(
        method="GET",
        path="/v1/tools/{name}/forms",
        name="showForms",
        about="A tool in the format of a model provider.",
        handler=_forms,
        scopes=(Scope.TOOLS_READ,),
        tag="tools",
        parameters=(NAME,),
        gives={200: ResponseSpec(about="The forms.", kind=dict[str, Any])},
        problems=(404,),
    ),
    Route(
        method="POST",
        path="/v1/tools/{name}:validate",
        name="validateCall",
        about="Check the arguments of a call without running it.",
        handler=_validate,
        scopes=(Scope.TOOLS_READ, Scope.CALL),
        tag="tools",
        parameters=(NAME,),
        body=ValidateBody,
        gives={200: ResponseSpec(about="The call fits.", kind=Checked)},
        problems=(404, 409, 413, 415, 422),
    ),
    Route(
        method="POST",
        path="/v1/tools/{name}:enable",
        name="enableTool",
        about="Enable a tool, or one of its versions.",
        handler=_enable,
        scopes=(Scope.TOOLS_WRITE,),
        tag="tools",
        parameters=(NAME,),
        gives={200: ResponseSpec(about="The tool as it is now.", kind=ToolView)},
        problems=(404, 409),
    ),
    Route(
        method="POST",
        path="/v1/tools/{name}:disable",
        name="disableTool",
        about="Disable a tool, or one of its versions.",
        handler=_disable,
        scopes=(Scope.TOOLS_WRITE,),
        tag="tools",
        parameters=(NAME,),
        gives={200: ResponseSpec(about="The tool as it is now.", kind=ToolView)},
        problems=(404, 409),
    ),
)
