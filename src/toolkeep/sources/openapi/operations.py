"""Turn an operation into a tool: one schema for parameters and body, and a plan of where each argument goes.

Argument names are unique, whatever the document calls things in path, query, header, cookie and body. What
cannot be sent as the document demands is `Refused`, with the reason.
"""

import re
from typing import Any, Final
from urllib.parse import quote

import msgspec

from toolkeep.network.parameter_styles import STYLES
from toolkeep.sources.openapi.document import Document, Refused
from toolkeep.sources.openapi.request_bodies import is_binary, is_json, plan_body
from toolkeep.sources.openapi.security_schemes import Authentication
from toolkeep.sources.openapi.standalone_schemas import Bundle, ExpansionBudget
from toolkeep.text.display import echo, echo_name

_ARGUMENT: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_ARGUMENT_CHARS: Final = 64
"""The longest property name that every provider accepts."""
_IGNORED_HEADERS: Final = frozenset({"accept", "content-type", "authorization"})
"""Header parameters of these names are ignored (OpenAPI, Parameter Object)."""
_SENDS_BODY: Final = frozenset({"post", "put", "patch", "delete"})
_PLACE: Final = re.compile(r"\{([^{}]*)\}")
_PARAMETERS: Final = 500
"""Of one operation; a model could not fill in more."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of an operation, and its request."""

    parameters: dict[str, Any]
    target: dict[str, Any]
    """For `network.http_endpoint.Endpoint`."""


class _Arguments:
    """The arguments of an operation while they are collected."""

    def __init__(self) -> None:
        self.properties: dict[str, Any] = {}
        self.required: list[str] = []
        self.places: list[dict[str, Any]] = []

    def name_for(self, wanted: str, where: str) -> str:
        """A unique name that every provider accepts."""
        clean = _ARGUMENT.sub("_", wanted).strip("_")[:_ARGUMENT_CHARS] or where
        used = {name.lower() for name in self.properties}
        for candidate in (clean, f"{clean[: _ARGUMENT_CHARS - 8]}_{where}"):
            if candidate.lower() not in used:
                return candidate
        number = 2
        while f"{clean[: _ARGUMENT_CHARS - 12]}_{where}_{number}".lower() in used:
            number += 1
        return f"{clean[: _ARGUMENT_CHARS - 12]}_{where}_{number}"


def plan_operation(
    document: Document,
    *,
    url: str,
    path: str,
    method: str,
    item: dict[str, Any],
    operation: dict[str, Any],
    authentication: Authentication,
    retries: int,
    allowance: ExpansionBudget,
) -> Plan:
    """The plan of an operation; `Refused` says why there is none."""
    if method not in ("get", "put", "post", "delete", "patch"):
        raise Refused(f"has the method {method.upper()}, which gives nothing that a tool could answer")
    bundle, arguments = Bundle(document, "request", allowance), _Arguments()
    in_path = set(_PLACE.findall(path.partition("#")[0]))
    taken = _held_by_secrets(authentication)
    for parameter in _parameters(document, item, operation):
        _add_parameter(bundle, arguments, parameter, in_path, taken)
    described = {place["name"] for place in arguments.places if place["in"] == "path"}
    if missing := in_path - described:
        raise Refused(f"has {{{echo_name(min(missing))}}} in its path and describes no such parameter")
    body = _add_body(document, bundle, arguments, method, operation)
    target: dict[str, Any] = {
        "url": url.rstrip("/") + _static_path(path),
        "method": method.upper(),
        "headers": dict(authentication.headers),
        "arguments": arguments.places,
        "secret_query": dict(authentication.query),
    }
    if body is not None:
        target["body"] = body
    if retries and method in ("get", "put", "delete"):
        target["retries"] = retries
    schema: dict[str, Any] = {"type": "object", "properties": arguments.properties}
    if arguments.required:
        schema["required"] = arguments.required
    if bundle.definitions:
        schema["$defs"] = bundle.definitions
    return Plan(parameters=schema, target=target)


def answer_schema(document: Document, operation: dict[str, Any]) -> Any:
    """The schema of a successful response, if the document states one, in JSON; else None."""
    responses = operation.get("responses")
    found: list[Any] = []
    for status, response in responses.items() if isinstance(responses, dict) else ():
        if not re.fullmatch(r"2([0-9]{2}|XX)", str(status)):
            continue
        content = _object(document.followed(response)).get("content")
        media = next((m for t, m in _object(content).items() if is_json(t)), None)
        if not isinstance(media, dict) or len(_object(content)) != 1 or "schema" not in media:
            return None
        found.append(media["schema"])
    return found[0] if len(found) == 1 else None


def gives_file(document: Document, operation: dict[str, Any]) -> bool:
    """Whether a successful response is bytes, and cannot be read as text or JSON."""
    responses = operation.get("responses")
    found: list[str] = []
    for status, response in responses.items() if isinstance(responses, dict) else ():
        if re.fullmatch(r"2([0-9]{2}|XX)", str(status)):
            content = _object(_object(document.followed(response)).get("content"))
            found += [str(kind).partition(";")[0].strip().lower() for kind in content]
    return bool(found) and all(map(is_binary, found))


def _parameters(document: Document, item: dict[str, Any], operation: dict[str, Any]) -> list[dict[str, Any]]:
    """The parameters of the path, each overridden by one of the operation with the same name and place."""
    found: dict[tuple[Any, Any], dict[str, Any]] = {}
    for holder in (item, operation):
        listed = holder.get("parameters") or []
        if not isinstance(listed, list) or len(listed) > _PARAMETERS:
            raise Refused("has parameters that are not a list, or too many")
        for one in listed:
            parameter = document.followed(one)
            if not isinstance(parameter, dict) or not isinstance(parameter.get("name"), str):
                raise Refused("has a parameter without a name")
            found[str(parameter.get("in")), parameter["name"]] = parameter
    return list(found.values())


def _add_parameter(
    bundle: Bundle,
    arguments: _Arguments,
    parameter: dict[str, Any],
    in_path: set[str],
    taken: set[tuple[str, str]],
) -> None:
    name: str = parameter["name"]
    where: str = str(parameter.get("in"))
    if where not in STYLES:
        raise Refused(f"has the parameter {echo_name(name)} in {echo(where)}")
    if where == "header" and name.lower() in _IGNORED_HEADERS:
        return
    if where == "path" and name not in in_path:
        return
    if (where, name.lower() if where == "header" else name) in taken:
        return  # a secret goes there: a model must not set it
    schema, style, explode = _written(bundle, parameter, where)
    argument = arguments.name_for(name, where)
    arguments.properties[argument] = _described(schema, parameter)
    if where == "path" or parameter.get("required") is True:
        arguments.required.append(argument)
    place = {"argument": argument, "in": where, "name": name, "style": style, "explode": explode}
    if parameter.get("allowReserved") is True and where == "query":
        place["reserved"] = True
    arguments.places.append(place)


def _held_by_secrets(authentication: Authentication) -> set[tuple[str, str]]:
    """The places of secrets: no argument may go there too."""
    held = {("query", name) for name, _ in authentication.query}
    for name, value in authentication.headers:
        held.add(("header", name.lower()))
        if name == "Cookie":
            held |= {("cookie", pair.partition("=")[0].strip()) for pair in value.split(";")}
    return held


def _written(bundle: Bundle, parameter: dict[str, Any], where: str) -> tuple[Any, str, bool]:
    """The schema of a parameter, and its style."""
    content = parameter.get("content")
    if isinstance(content, dict):
        media = next((m for t, m in content.items() if is_json(t)), None)
        if not isinstance(media, dict):
            raise Refused(f"has the parameter {echo_name(parameter['name'])} in a form that is not JSON")
        return bundle.add(media.get("schema", True)), "json", False
    style = parameter.get("style", "simple" if where in ("path", "header") else "form")
    if style not in STYLES[where]:
        reason = f"in the {where} in the style {echo(style)}"
        raise Refused(f"has the parameter {echo_name(parameter['name'])} {reason}")
    explode = parameter.get("explode", style in ("form", "deepObject"))
    return bundle.add(parameter.get("schema", True)), style, explode is True


def _described(schema: Any, holder: dict[str, Any]) -> Any:
    """The schema with the description of its parameter."""
    words = holder.get("description")
    if not isinstance(words, str) or not words.strip():
        return schema
    if schema is True:
        return {"description": words}
    return {**schema, "description": words} if isinstance(schema, dict) else schema


def _add_body(
    document: Document, bundle: Bundle, arguments: _Arguments, method: str, operation: dict[str, Any]
) -> dict[str, Any] | None:
    if operation.get("requestBody") is None:
        return None
    body = document.followed(operation["requestBody"])
    content = _object(body).get("content")
    if not isinstance(content, dict) or not content:
        return None
    if method not in _SENDS_BODY:
        if _object(body).get("required") is not True:
            return None  # optional, and dropped on the way by servers and proxies
        raise Refused(f"requires a body with {method.upper()}, which servers and proxies drop")
    planned = plan_body(document, content)
    argument = arguments.name_for("body", "body")
    arguments.properties[argument] = _described(bundle.add(planned.schema), _object(body))
    is_required = _object(body).get("required") is True
    if is_required:
        arguments.required.append(argument)
    plan = {"argument": argument, "content_type": planned.content_type, "required": is_required}
    return {**plan, **planned.sending}


def _static_path(path: str) -> str:
    """The path with everything but its parameters encoded."""
    if not path.startswith("/"):
        raise Refused("has a path that does not begin with /")
    # Some documents tell operations on one path apart by a fragment, which no server is sent.
    pieces = _PLACE.split(path.partition("#")[0])
    return "".join(
        f"{{{piece}}}" if index % 2 else quote(piece, safe="/?=&%:@!$'()*+,;~-._")
        for index, piece in enumerate(pieces)
    )


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
