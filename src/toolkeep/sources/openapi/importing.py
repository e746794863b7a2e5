"""A whole document becomes offers: a tool for each operation, or the reason why there is none.

Trusts nothing that the document says: words are cleaned and read, danger is at least medium, calls go to one
origin that a person named. Side effects and danger follow from the method.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from toolkeep.canonical import canonical_hash
from toolkeep.config.settings import Run
from toolkeep.definitions.capability import Capability
from toolkeep.definitions.elsewhere import import_definition
from toolkeep.definitions.names import portable_name
from toolkeep.definitions.naming import choose_names
from toolkeep.definitions.roles import with_roles
from toolkeep.definitions.vocabulary import Category, Danger, ResultType, Role, SideEffect
from toolkeep.errors import Code, DefinitionError, DefinitionInvalid, Problem
from toolkeep.limits import DESCRIPTION_CHARS
from toolkeep.network.endpoint import Endpoint
from toolkeep.network.hosts import HostRefused, read_url
from toolkeep.registry.given import Offer
from toolkeep.sources.openapi.answers import Answers
from toolkeep.sources.openapi.document import Document, Refused, shown_operation
from toolkeep.sources.openapi.operations import gives_file, plan_operation
from toolkeep.sources.openapi.schemas import Allowance
from toolkeep.sources.openapi.security import authentication_of
from toolkeep.wording import echo, echo_name, shorten

OPERATIONS: Final = 2_000
RETRIES: Final = 2
_DANGERS: Final = {"delete": Danger.HIGH}


class Import(msgspec.Struct, frozen=True, kw_only=True):
    """One operation: what it would be called, and its offer or the reason why there is none."""

    operation: str
    """Such as `GET /books/{id}`."""
    name: str
    original: str
    offer: Offer | None = None
    reason: str = ""
    secrets: tuple[str, ...] = ()


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What a person said about an upstream."""

    name: str
    url: str
    """Where calls go; the document does not decide it."""
    operations: tuple[str, ...] = ()
    """Only these, by their name in the document; all where there are none."""
    dangers: Mapping[str, Danger] = {}
    roles: Mapping[str, Mapping[str, Role]] = {}
    """What a person said of arguments, by the name of a tool and the pointer of an argument."""
    """By the name in the document."""
    checks_answers: bool = True
    secrets: frozenset[str] = frozenset()


def import_document(document: Document, wishes: Wishes, taken: Iterable[str] = ()) -> list[Import]:
    """Every operation of the document, in its order."""
    found = list(document.operations())
    originals = _originals(found)
    names = choose_names(originals, upstream=wishes.name, taken=taken)
    imports: list[Import] = []
    answers = Answers(document, Allowance())
    for (path, method, item, operation), original in zip(found, originals, strict=True):
        if wishes.operations and original not in wishes.operations:
            continue
        made = Import(operation=shown_operation(path, method), name=names[original], original=original)
        if len(imports) >= OPERATIONS:
            imports.append(msgspec.structs.replace(made, reason=f"is beyond the first {OPERATIONS}"))
            continue
        try:
            offer, secrets = _offer(document, wishes, made, (path, method, item, operation), answers)
            imports.append(msgspec.structs.replace(made, offer=offer, secrets=secrets))
        except Refused as error:
            imports.append(msgspec.structs.replace(made, reason=str(error)))
        except (DefinitionError, ValueError) as error:
            imports.append(msgspec.structs.replace(made, reason=_in_words(error)))
    if not wishes.operations:
        imports += _lost(document, imports)
    return imports


def _lost(document: Document, imports: list[Import]) -> Iterator[Import]:
    """Paths of which no operation can be named; they are told like operations."""
    used = {made.name.lower() for made in imports}
    for number, (path, reason) in enumerate(islice(document.lost_paths(), OPERATIONS)):
        name = portable_name(path)
        if name.lower() in used:
            name = portable_name(f"{number} {path}")
        used.add(name.lower())
        yield Import(operation=f"path {echo_name(path)}", name=name, original=path, reason=reason)


def refused_offer(made: Import) -> Offer:
    """The offer of an operation that cannot be imported: it is skipped with its reason."""
    problem = Problem(
        field=made.operation,
        code=Code.DEFINITION_INVALID,
        message=made.reason,
        mend="leave it out of `operations`, or ask whoever wrote the document",
    )
    return Offer(tool=DefinitionInvalid(made.name, [problem]), name=made.name)


def server_urls(document: Document) -> list[str]:
    """The addresses that a document names, variables at their defaults; a person chooses."""
    servers = document.data.get("servers")
    found = []
    for server in servers if isinstance(servers, list) else ():
        url = server.get("url") if isinstance(server, dict) else None
        if isinstance(url, str):
            variables = server.get("variables")
            found.append(_filled(url, variables if isinstance(variables, dict) else {}))
    return found


def wrong_with_url(url: str) -> str | None:
    """Why calls cannot go there, or None."""
    if "{" in url:
        return "has a variable in it that the document gives no value"
    if "?" in url or "#" in url:
        return "has a query or a fragment"
    try:
        host = read_url(url)
    except HostRefused as refused:
        return f"cannot be used: {refused.reason}"
    return None if host.scheme in ("http", "https") else "is neither http nor https"


def _filled(url: str, variables: dict[str, Any]) -> str:
    def value(match: re.Match[str]) -> str:
        variable = variables.get(match[1])
        default = variable.get("default") if isinstance(variable, dict) else None
        return default if isinstance(default, str) else match[0]

    return re.sub(r"\{([^{}]+)\}", value, url)


def _originals(found: list[tuple[str, str, dict[str, Any], dict[str, Any]]]) -> list[str]:
    """How the document calls each operation; what it calls nothing, or twice, by method and path."""
    used: set[str] = set()
    originals = []
    for path, method, _, operation in found:
        wanted = operation.get("operationId")
        name = wanted if isinstance(wanted, str) and wanted and wanted not in used else f"{method} {path}"
        used.add(name)
        originals.append(name)
    return originals


def _offer(
    document: Document,
    wishes: Wishes,
    made: Import,
    found: tuple[str, str, dict[str, Any], dict[str, Any]],
    answers: Answers,
) -> tuple[Offer, tuple[str, ...]]:
    path, method, item, operation = found
    _refuse_other_servers(wishes.url, item, operation)
    authentication = authentication_of(document, operation, wishes.secrets)
    plan = plan_operation(
        document,
        url=wishes.url,
        path=path,
        method=method,
        item=item,
        operation=operation,
        authentication=authentication,
        retries=RETRIES,
        allowance=answers.allowance,
    )
    endpoint = Endpoint.read(plan.target)
    data = {"name": made.original, "description": _words(operation), "parameters": plan.parameters}
    warnings: tuple[Problem, ...] = ()
    if wishes.checks_answers:
        data["output_schema"], warnings = answers.of(operation)
    imported = import_definition(data, kind="openapi", origin=wishes.name, name=made.name)
    is_reading = method == "get"
    result_type = _result_type(document, operation)
    definition = with_roles(imported.definition, wishes.roles.get(made.original, {})).replace(
        category=Category.EXTERNAL_API,
        capabilities=(Capability.read(endpoint.needs),),
        side_effects=(SideEffect.NET_READ if is_reading else SideEffect.NET_WRITE,),
        idempotent=method in ("get", "put", "delete"),
        danger=wishes.dangers.get(made.original, _DANGERS.get(method, Danger.MEDIUM)),
        result_type=result_type,
        metadata={"request": _request(plan.target)},
    )
    offer = Offer(
        tool=definition,
        name=made.name,
        runner=Run(kind="http", target=plan.target),
        suspicion=imported.held_back,
        warnings=(*imported.warnings, *warnings),
    )
    return offer, authentication.secrets


def _request(target: dict[str, Any]) -> dict[str, Any]:
    """What is asked, as part of the definition: one that asks for something else is another one (REG-3)."""
    made: dict[str, Any] = {"method": target["method"], "url": target["url"]}
    if sent := dict(_sent(target)):
        made["sent"] = sent
    if target["headers"] or target["secret_query"]:
        made["secrets"] = canonical_hash([target["headers"], target["secret_query"]])
    return made


def _sent(target: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Where each argument stands in the request, and each field of a body that is not written as usual."""
    for place in target["arguments"]:
        yield place["argument"], _place(place)
    if body := target.get("body"):
        yield body["argument"], f"body {body['content_type']}"
        for field, place in (body.get("fields") or {}).items():
            yield f"{body['argument']}/{field}", _place(place)
        for field, part in (body.get("parts") or {}).items():
            yield f"{body['argument']}/{field}", " ".join((part["kind"], part["content_type"]))


def _place(place: dict[str, Any]) -> str:
    flags = [flag for flag in ("explode", "reserved") if place.get(flag)]
    return " ".join((place["in"], place["name"], place["style"], *flags))


def _result_type(document: Document, operation: dict[str, Any]) -> ResultType | None:
    """Bytes where the document promises nothing else; whatever comes where it says nothing clear."""
    try:
        return ResultType.BINARY if gives_file(document, operation) else None
    except Refused:
        return None


def _words(operation: dict[str, Any]) -> str:
    """Summary and description, as far as a definition holds them."""
    texts = [operation.get(key) for key in ("summary", "description")]
    words = [text.strip() for text in texts if isinstance(text, str) and text.strip()]
    if len(words) == 2 and words[1].startswith(words[0]):
        words = words[1:]
    return shorten("\n\n".join(words), DESCRIPTION_CHARS)


def _refuse_other_servers(url: str, item: dict[str, Any], operation: dict[str, Any]) -> None:
    for holder in (operation, item):
        servers = holder.get("servers")
        urls = [s.get("url") for s in servers if isinstance(s, dict)] if isinstance(servers, list) else []
        others = [one for one in urls if one != url]
        if urls and len(others) == len(urls):
            raise Refused(f"is answered by another server, {echo(others[0])}")
        if urls:
            return


def _in_words(error: Exception) -> str:
    if isinstance(error, DefinitionError):
        return "; ".join(f"{echo_name(p.field)} {p.message}" for p in error.problems[:3])
    return str(error)
