"""Import a whole document: an offer for each operation, or the reason why there is none.

Trusts nothing in the document: text is sanitized and scanned, danger is at least medium, and calls go to one
origin that a person named. Side effects and danger follow from the HTTP method.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from toolkeep.config.settings import Run
from toolkeep.definitions.argument_roles import NO_TOOL_FLOW, ToolFlow, with_flow
from toolkeep.definitions.capability import Capability
from toolkeep.definitions.imported import import_definition
from toolkeep.definitions.tool_names import choose_names, portable_name
from toolkeep.definitions.vocabulary import Category, Danger, ResultType, SideEffect
from toolkeep.errors import Code, DefinitionError, DefinitionInvalid, Problem
from toolkeep.json_values.canonical import canonical_hash
from toolkeep.limits import DEFAULT_LIMITS, DESCRIPTION_CHARS
from toolkeep.network.hosts import HostRefused, read_url
from toolkeep.network.http_endpoint import Endpoint
from toolkeep.registry.coerce import Offer
from toolkeep.sources.openapi.document import Document, Refused, shown_operation
from toolkeep.sources.openapi.operations import answer_schema, gives_file, plan_operation
from toolkeep.sources.openapi.reduced_schemas import reduced
from toolkeep.sources.openapi.security_schemes import authentication_of
from toolkeep.sources.openapi.standalone_schemas import Bundle, ExpansionBudget
from toolkeep.text.display import echo, echo_name, shorten
from toolkeep.validation.compile import compile_output


class Answers:
    """The response schemas. Operations share them: each is read and compiled once."""

    def __init__(self, document: Document, allowance: ExpansionBudget) -> None:
        self._document = document
        self.allowance = allowance
        """What may still be read of the document."""
        self._known: dict[str | int, tuple[Any, tuple[Problem, ...]]] = {}

    def of(self, operation: dict[str, Any]) -> tuple[Any, tuple[Problem, ...]]:
        """The response schema of one operation, or why its responses are not checked."""
        try:
            said = answer_schema(self._document, operation)
        except Refused as error:
            return None, (_unchecked(str(error)),)
        if not isinstance(said, dict):
            return None, ()
        reference = said.get("$ref")
        key = reference if isinstance(reference, str) and len(said) == 1 else id(said)
        if key not in self._known:
            self._known[key] = self._read(said)
        return self._known[key]

    def _read(self, said: dict[str, Any]) -> tuple[Any, tuple[Problem, ...]]:
        bundle = Bundle(self._document, "response", self.allowance)
        try:
            schema = bundle.add(said)
        except Refused as error:
            return None, (_unchecked(str(error)),)
        if bundle.definitions:
            schema = {**schema, "$defs": bundle.definitions}
        made = compile_output(schema, by_hand=False, limits=DEFAULT_LIMITS)
        if made.compiled is None:
            reason = made.problems[0].message if made.problems else "cannot be compiled"
            return None, (_unchecked(f"its schema {reason}"),)
        return schema, ()


def _unchecked(reason: str) -> Problem:
    return _problem("output_schema", f"answers are not checked: {reason}")


def _problem(field: str, message: str) -> Problem:
    fix = "report it to the author of the document"
    return Problem(field=field, code=Code.DEFINITION_INVALID, message=message, fix=fix)


OPERATIONS: Final = 2_000
"""More than the largest public documents have; each becomes a tool with a compiled schema."""
RETRIES: Final = 2
_DANGERS: Final = {"delete": Danger.HIGH}


class Import(msgspec.Struct, frozen=True, kw_only=True):
    """One operation: its name, and its offer or the reason why there is none."""

    operation: str
    """Such as `GET /books/{id}`."""
    name: str
    original: str
    offer: Offer | None = None
    reason: str = ""
    secrets: tuple[str, ...] = ()


class ImportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's settings for an upstream."""

    name: str
    url: str
    """Where calls go. The document does not decide it: its author could redirect the credentials."""
    operations: tuple[str, ...] = ()
    """Only these, by their name in the document; all if empty."""
    dangers: Mapping[str, Danger] = {}
    """By the name in the document."""
    effects: Mapping[str, SideEffect] = {}
    """By the name in the document; by method if there is none."""
    flows: Mapping[str, ToolFlow] = {}
    """The roles that the operator declared, by tool name and JSON Pointer of an argument."""
    checks_answers: bool = True
    secrets: frozenset[str] = frozenset()


def import_document(document: Document, wishes: ImportOptions, taken: Iterable[str] = ()) -> list[Import]:
    """Every operation of the document, in order."""
    found = list(document.operations())
    originals = _originals(found)
    names = choose_names(originals, upstream=wishes.name, taken=taken)
    imports: list[Import] = []
    answers = Answers(document, ExpansionBudget())
    for (path, method, item, operation), original in zip(found, originals, strict=True):
        if wishes.operations and original not in wishes.operations:
            continue
        made = Import(operation=shown_operation(path, method), name=names[original], original=original)
        if len(imports) >= OPERATIONS:
            imports.append(
                msgspec.structs.replace(made, reason=f"exceeds the limit of {OPERATIONS} operations")
            )
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
    """Paths without a usable operation; reported like operations."""
    used = {made.name.lower() for made in imports}
    for number, (path, reason) in enumerate(islice(document.lost_paths(), OPERATIONS)):
        name = portable_name(path)
        if name.lower() in used:
            name = portable_name(f"{number} {path}")
        used.add(name.lower())
        yield Import(operation=f"path {echo_name(path)}", name=name, original=path, reason=reason)


def refused_offer(made: Import) -> Offer:
    """The offer of an operation that cannot be imported: skipped with its reason."""
    problem = Problem(
        field=made.operation,
        code=Code.DEFINITION_INVALID,
        message=made.reason,
        fix="leave it out of `operations`, or report it to the author of the document",
    )
    return Offer(tool=DefinitionInvalid(made.name, [problem]), name=made.name)


def server_urls(document: Document) -> list[str]:
    """The server URLs of a document, with variables at their defaults; a person chooses."""
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
    """The document's name of each operation; method and path if it has none or a duplicate."""
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
    wishes: ImportOptions,
    made: Import,
    found: tuple[str, str, dict[str, Any], dict[str, Any]],
    answers: Answers,
) -> tuple[Offer, tuple[str, ...]]:
    path, method, item, operation = found
    document.check_operation(operation)
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
    parameters, left_out = reduced(plan.parameters)
    data = {"name": made.original, "description": _words(operation), "parameters": parameters}
    warnings: tuple[Problem, ...] = ()
    if wishes.checks_answers:
        data["output_schema"], warnings = answers.of(operation)
    if left_out:
        warnings = (*warnings, _problem("parameters", left_out))
    imported = import_definition(data, kind="openapi", origin=wishes.name, name=made.name)
    by_method = SideEffect.NET_READ if method == "get" else SideEffect.NET_WRITE
    result_type = _result_type(document, operation)
    definition = with_flow(imported.definition, wishes.flows.get(made.original, NO_TOOL_FLOW)).replace(
        category=Category.EXTERNAL_API,
        capabilities=(Capability.read(endpoint.needs),),
        side_effects=(wishes.effects.get(made.original, by_method),),
        idempotent=method in ("get", "put", "delete"),
        danger=wishes.dangers.get(made.original, _DANGERS.get(method, Danger.MEDIUM)),
        result_type=result_type,
        metadata={"request": _request(plan.target)},
    )
    offer = Offer(
        tool=definition,
        name=made.name,
        runner=Run(kind="http", target=plan.target),
        removed=imported.removed,
        warnings=(*imported.warnings, *warnings),
    )
    return offer, authentication.secrets


def _request(target: dict[str, Any]) -> dict[str, Any]:
    """The request as part of the definition, so that its hash covers it: another request is another tool
    (REG-3)."""
    made: dict[str, Any] = {"method": target["method"], "url": target["url"]}
    if sent := dict(_sent(target)):
        made["sent"] = sent
    if target["headers"] or target["secret_query"]:
        made["secrets"] = canonical_hash([target["headers"], target["secret_query"]])
    return made


def _sent(target: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Where each argument goes in the request, and the encoding of body fields."""
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
    """Bytes if the document promises nothing else; any if it says nothing clear."""
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
