"""Routes of tools: list, look, check, switch, and custom definitions."""

from typing import Any, Final, get_args

import msgspec

from toolkeep.calls import Refusal
from toolkeep.definitions.tool import SourceKind
from toolkeep.definitions.vocabulary import Category, Danger, ToolState
from toolkeep.server import definitions, tools
from toolkeep.server.answers import Answer, answer, tagged
from toolkeep.server.problems import of_refusal, problem
from toolkeep.server.request import Parameter, Request
from toolkeep.server.routes.common import CURSOR, LIMIT, MATCH, NAME, NONE_MATCH, TAG
from toolkeep.server.routes.raw import read_raw
from toolkeep.server.routing import Given, Route
from toolkeep.server.service import Service
from toolkeep.tokens import Scope


async def _list_tools(service: Service, request: Request) -> Answer:
    query = request.query
    filters = tools.Filters(**{name: query[name] for name in tools.Filters.__struct_fields__})
    page = tools.list_tools(
        service.keep, request.caller, filters, limit=query["limit"], cursor=query["cursor"]
    )
    return tagged(page, request.header("If-None-Match"))


async def _show_tool(service: Service, request: Request) -> Answer:
    view = tools.show_tool(service.keep, request.caller, request.names["name"])
    return tagged(view, request.header("If-None-Match"), view.tag)


async def _list_versions(service: Service, request: Request) -> Answer:
    return answer(tools.list_versions(service.keep, request.caller, request.names["name"]))


async def _forms(service: Service, request: Request) -> Answer:
    return answer(tools.provider_forms(service.keep, request.caller, request.names["name"]))


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


async def _validate(service: Service, request: Request) -> Answer:
    raw = await request.body()
    body = read_raw(raw, _decoder)
    name = request.names["name"]
    checked = tools.check_call(service.keep, request.caller, name, bytes(body.arguments), body.conversation)
    if isinstance(checked, Refusal):
        return problem(of_refusal(checked))
    return answer(checked.to_dict())


async def _enable(service: Service, request: Request) -> Answer:
    return answer(tools.switch_tool(service.keep, request.caller, request.names["name"], enabled=True))


async def _disable(service: Service, request: Request) -> Answer:
    return answer(tools.switch_tool(service.keep, request.caller, request.names["name"], enabled=False))


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """A definition as a configuration file would say it; docs/manual.md has every field."""

    name: str
    description: str
    version: str = "1.0.0"


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of a definition with their new values; null takes one back to its default."""

    version: str | None = None


async def _create(service: Service, request: Request) -> Answer:
    data = await request.read(dict[str, Any])
    view = await definitions.create_definition(service.keep, request.caller, data)
    place = (b"location", f"/v1/tools/{view.tool.name}".encode())
    return answer(view, 201, [place, (b"etag", view.tag.encode())])


async def _update(service: Service, request: Request) -> Answer:
    changes = await request.read(dict[str, Any])
    view = await definitions.update_definition(
        service.keep, request.caller, request.names["name"], changes, condition=request.header("If-Match")
    )
    return answer(view, 200, [(b"etag", view.tag.encode())])


async def _delete(service: Service, request: Request) -> Answer:
    condition = request.header("If-Match")
    await definitions.delete_definition(
        service.keep, request.caller, request.names["name"], condition=condition
    )
    return Answer(204)


async def _check(service: Service, request: Request) -> Answer:
    data = await request.read(dict[str, Any])
    return answer(await definitions.check_definition(service.keep, request.caller, data))


_decoder: Final = msgspec.json.Decoder(RawValidate)

ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/tools",
        name="listTools",
        about="The tools that the token's agent may know of; with admin, all.",
        handler=_list_tools,
        scopes=(Scope.TOOLS_READ,),
        tag="tools",
        parameters=(
            Parameter(name="category", about="Only these.", choices=tuple(c.value for c in Category)),
            Parameter(name="danger", about="Only these.", choices=tuple(d.value for d in Danger)),
            Parameter(name="state", about="Only these.", choices=tuple(s.value for s in ToolState)),
            Parameter(name="source", about="Only these.", choices=get_args(SourceKind)),
            Parameter(name="search", about="Words that they should fit, the best first.", longest=1024),
            LIMIT,
            CURSOR,
            NONE_MATCH,
        ),
        gives={
            200: Given(about="One page.", kind=tools.ToolPage, headers=TAG),
            304: Given(about="The client has it already.", headers=TAG),
        },
    ),
    Route(
        method="GET",
        path="/v1/tools/{name}",
        name="showTool",
        about="One tool: definition without what is secret, signature, versions.",
        handler=_show_tool,
        scopes=(Scope.TOOLS_READ,),
        tag="tools",
        parameters=(NAME, NONE_MATCH),
        gives={
            200: Given(about="The tool.", kind=tools.ToolView, headers=TAG),
            304: Given(about="The client has it already.", headers=TAG),
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
        gives={200: Given(about="The versions.", kind=list[tools.VersionView])},
        problems=(404,),
    ),
    Route(
        method="GET",
        path="/v1/tools/{name}/forms",
        name="showForms",
        about="A tool as models are told of it, by provider.",
        handler=_forms,
        scopes=(Scope.TOOLS_READ,),
        tag="tools",
        parameters=(NAME,),
        gives={200: Given(about="The forms.", kind=dict[str, Any])},
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
        gives={200: Given(about="The call fits.", kind=Checked)},
        problems=(404, 409, 413, 415, 422),
    ),
    Route(
        method="POST",
        path="/v1/tools/{name}:enable",
        name="enableTool",
        about="Let a tool, or one of its versions, answer again.",
        handler=_enable,
        scopes=(Scope.TOOLS_WRITE,),
        tag="tools",
        parameters=(NAME,),
        gives={200: Given(about="The tool as it is now.", kind=tools.ToolView)},
        problems=(404, 409),
    ),
    Route(
        method="POST",
        path="/v1/tools/{name}:disable",
        name="disableTool",
        about="Keep a tool, or one of its versions, from answering.",
        handler=_disable,
        scopes=(Scope.TOOLS_WRITE,),
        tag="tools",
        parameters=(NAME,),
        gives={200: Given(about="The tool as it is now.", kind=tools.ToolView)},
        problems=(404, 409),
    ),
    Route(
        method="POST",
        path="/v1/tools",
        name="createTool",
        about="Keep a custom definition. What runs it is taken from the scope admin alone.",
        handler=_create,
        scopes=(Scope.TOOLS_WRITE,),
        tag="tools",
        body=Definition,
        gives={
            201: Given(
                about="It is kept.",
                kind=tools.ToolView,
                headers=(("Location", "Where it is."), *TAG),
            ),
        },
        problems=(409, 422),
    ),
    Route(
        method="PATCH",
        path="/v1/tools/{name}",
        name="updateTool",
        about="Change fields of a custom definition; all but `enabled` need a higher version.",
        handler=_update,
        scopes=(Scope.TOOLS_WRITE,),
        tag="tools",
        parameters=(NAME, MATCH),
        body=Changes,
        gives={200: Given(about="It is changed.", kind=tools.ToolView, headers=TAG)},
        problems=(404, 409, 412, 422, 428),
    ),
    Route(
        method="DELETE",
        path="/v1/tools/{name}",
        name="deleteTool",
        about="Let go of a custom definition, with all of its versions.",
        handler=_delete,
        scopes=(Scope.TOOLS_WRITE,),
        tag="tools",
        parameters=(NAME, MATCH),
        gives={204: Given(about="It is gone.")},
        problems=(404, 409, 412, 428),
    ),
    Route(
        method="POST",
        path="/v1/tools:check",
        name="checkTool",
        about="What would be wrong with a custom definition; nothing is kept.",
        handler=_check,
        scopes=(Scope.TOOLS_WRITE,),
        tag="tools",
        body=dict[str, Any],
        gives={200: Given(about="Everything that is wrong.", kind=definitions.DefinitionReport)},
    ),
)
