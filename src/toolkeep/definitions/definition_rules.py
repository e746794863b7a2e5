"""The rules for a definition that need no compiled schema (DEF-2, 3, 4, 6, 7, 8); all problems at once.

In: a definition. Out: its problems and, for an imported one, those that only warn. The rules for schemas are
in `toolkeep.validation.guard`.
"""

import json
import re
from collections.abc import Iterator, Sequence

from toolkeep.definitions.result_labels import label_problems
from toolkeep.definitions.tool import BY_HAND, ToolDefinition
from toolkeep.definitions.tool_names import is_imported_name, wrong_with_author_name
from toolkeep.definitions.vocabulary import Category, Determinism, Isolation, SideEffect
from toolkeep.errors import Code, DefinitionInvalid, Problem
from toolkeep.json_values.frozen import NotJson, freeze
from toolkeep.limits import (
    ALIASES,
    DEFAULT_EXECUTION_SECONDS,
    DESCRIPTION_CHARS,
    EXECUTION_SECONDS,
    LABEL_CHARS,
    NAME_CHARS,
    OUTPUT_BYTES,
    STORED_JSON_BYTES,
    VERSION_CHARS,
)

SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)


def problems_of(definition: ToolDefinition) -> tuple[list[Problem], list[Problem]]:
    """The problems that refuse the definition, and those that only warn."""
    refusing: list[Problem] = []
    warning: list[Problem] = []
    for problem, is_author_rule in _problems(definition):
        lenient = is_author_rule and not definition.source.is_by_hand
        (warning if lenient else refusing).append(problem)
    return refusing, warning


def refuse_problems(name: str, problems: Sequence[Problem]) -> None:
    """Raise `DefinitionInvalid` if there are problems."""
    if problems:
        raise DefinitionInvalid(name, problems)


def refuse_broken_rules(definition: ToolDefinition) -> None:
    """Raise `DefinitionInvalid` with every rule that the definition breaks."""
    refuse_problems(definition.name, problems_of(definition)[0])


def written_by_hand(definition: ToolDefinition) -> ToolDefinition:
    """The definition, unless it claims to be imported.

    Only an importer sets the source: author rules only warn about imports, so a file could use the claim to
    get around them.
    """
    if definition.source != BY_HAND:
        fix = "remove it, or import the tool with ToolDefinition.from_elsewhere"
        refuse_problems(definition.name, [_problem("source", "is set by the importer of a tool", fix)])
    return definition


def _problem(field: str, message: str, fix: str) -> Problem:
    return Problem(field=field, code=Code.DEFINITION_INVALID, message=message, fix=fix)


def _problems(definition: ToolDefinition) -> Iterator[tuple[Problem, bool]]:
    yield from _names(definition)
    yield from _texts(definition)
    yield from ((problem, True) for problem in _contradicted(definition))
    for check in (_sizes, _constraints, _bounds, _effects, _labels, _data):
        yield from ((problem, False) for problem in check(definition))


def _names(definition: ToolDefinition) -> Iterator[tuple[Problem, bool]]:
    by_hand = definition.source.is_by_hand
    names = (definition.name, *definition.aliases[:ALIASES])
    if len(definition.aliases) > ALIASES:
        message = f"has {len(definition.aliases)} aliases, at most {ALIASES} are allowed"
        yield _problem("aliases", message, "keep those that matter"), False
    met: set[str] = set()
    for index, name in enumerate(names):
        field = f"aliases/{index - 1}" if index else "name"
        if by_hand:
            if wrong := wrong_with_author_name(name):
                fix = f"use snake_case such as 'read_file', at most {NAME_CHARS} characters"
                yield _problem(field, f"{name[:NAME_CHARS]!r} {wrong}", fix), False
        elif not is_imported_name(name, is_mcp=definition.source.kind == "mcp"):
            yield (
                _problem(field, f"{name[:NAME_CHARS]!r} is not portable", "map it with portable_name"),
                False,
            )
        if name.casefold() in met:
            yield _problem(field, "an alias repeats the name or another alias", "remove the alias"), False
        met.add(name.casefold())


def _texts(definition: ToolDefinition) -> Iterator[tuple[Problem, bool]]:
    description, version = definition.description, definition.version
    if not description.strip():
        yield _problem("description", "is blank", "say what the tool does, in one or two sentences"), True
    if len(description) > DESCRIPTION_CHARS:
        message = f"has {len(description)} characters, at most {DESCRIPTION_CHARS} are allowed"
        yield (
            _problem("description", message, "shorten it; usage_metadata can say when to use the tool"),
            True,
        )
    if len(version) > VERSION_CHARS or not SEMVER.fullmatch(version):
        message = (
            f"{version[:VERSION_CHARS]!r} is not a semantic version of at most {VERSION_CHARS} characters"
        )
        yield _problem("version", message, "use a version such as 1.0.0"), False


def _sizes(definition: ToolDefinition) -> Iterator[Problem]:
    stored = {
        "constraints": definition.constraints.to_dict(),
        "required_permissions": list(definition.required_permissions),
    }
    for field, value in stored.items():
        if not value:  # of most definitions, and three are made for an import
            continue
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        if len(text.encode(errors="surrogatepass")) > STORED_JSON_BYTES:
            yield _problem(field, f"are over {STORED_JSON_BYTES} bytes as JSON", "shorten them")


def _data(definition: ToolDefinition) -> Iterator[Problem]:
    """Data that JSON cannot hold, such as a lone surrogate, has no hash either."""
    try:
        definition.hash  # noqa: B018 -- takes a sixth of the time of locating the fault
    except (TypeError, ValueError, RecursionError):
        yield from _unwritable(definition)


def _unwritable(definition: ToolDefinition) -> Iterator[Problem]:
    try:
        freeze(definition.to_dict())
    except NotJson as error:
        yield _problem(error.path.removeprefix("/"), error.reason, "use JSON data only")


def _constraints(definition: ToolDefinition) -> Iterator[Problem]:
    seconds = definition.constraints.max_execution_time_s
    low, high = EXECUTION_SECONDS
    if seconds is not None and not low <= seconds <= high:
        yield _problem(
            "constraints/max_execution_time",
            f"{seconds:g} s is outside {low:g} s to {high:g} s",
            f"give seconds in this range, or leave it out for {DEFAULT_EXECUTION_SECONDS:g} s",
        )
    size = definition.constraints.max_output_bytes
    smallest, largest = OUTPUT_BYTES
    if size is not None and not smallest <= size <= largest:
        yield _problem(
            "constraints/max_output_size",
            f"{size} bytes is outside {smallest} to {largest}",
            "choose a size inside, or leave it out for the default",
        )
    if len(definition.constraints.runs_on or "") > LABEL_CHARS:
        yield _problem(
            "constraints/runs_on", f"is longer than {LABEL_CHARS} characters", "name the label of workers"
        )
    strict_enough = (Isolation.STRICT, Isolation.RESTRICTED)
    if (
        definition.category is Category.CODE_EXECUTION
        and definition.constraints.isolation not in strict_enough
    ):
        yield _problem(
            "constraints/required_isolation",
            "the category code_execution needs strict or restricted",
            "set required_isolation to strict",
        )


def _bounds(definition: ToolDefinition) -> Iterator[Problem]:
    bounds = definition.resource_bounds
    positive: dict[str, float | None] = {
        "max_memory": bounds.max_memory_bytes,
        "max_cpu": bounds.max_cpu_cores,
    }
    if bounds.max_network is not None:
        positive["max_network/max_requests"] = bounds.max_network.max_requests
        positive["max_network/max_bytes"] = bounds.max_network.max_bytes
    for name, value in positive.items():
        if value is not None and value <= 0:
            yield _problem(
                f"resource_bounds/{name}", f"{value} is not above zero", "raise it, or leave it out"
            )


def _effects(definition: ToolDefinition) -> Iterator[Problem]:
    effects = definition.side_effects or ()
    alone = next((effect for effect in effects if effect.is_class), None)
    if alone is not None and len(effects) > 1:
        message = f"{alone.value} cannot be combined with another effect"
        yield _problem("side_effects", message, "keep one or the other")
    real = [effect for effect in effects if effect is not SideEffect.NONE]
    if definition.determinism is Determinism.PURE and real:
        yield _problem("determinism", "a Pure tool has no side effects", "use Deterministic or Maybe")
    if definition.has_write_effects and not definition.constraints.allow_side_effects:
        yield _problem(
            "constraints/allow_side_effects",
            "is false, but a write effect is declared",
            "drop one of the two",
        )
    if definition.has_write_effects and definition.danger is None:
        yield _problem(
            "danger", "a tool with a write effect states its danger", "state it: low, medium, high …"
        )
    held = {capability.kind for capability in definition.capabilities}
    for effect in real:
        if effect.capability is not None and effect.capability not in held:
            yield _problem(
                "capabilities",
                f"{effect.value} needs a capability {effect.capability}",
                f"add {effect.capability!r}, with a scope where you know it",
            )


def _labels(definition: ToolDefinition) -> Iterator[Problem]:
    if not definition.flow:
        return
    for at, message in label_problems(definition.flow, definition.output_schema):
        yield _problem(
            f"flow/{at}" if at else "flow", message, "see the labels of results in the documentation"
        )


def _contradicted(definition: ToolDefinition) -> Iterator[Problem]:
    for effect in definition.contradicting_effects:
        yield _problem(
            "side_effects",
            f"state no write, but a parameter is marked {effect.capability}",
            f"state {effect.value}, or remove the mark",
        )
