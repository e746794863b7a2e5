"""Imports the tools of an MCP server as offers: each a definition, or the reason why there is none.

Nothing that the server says is trusted. Text is sanitized and scanned for prompt injection. Danger is at
least medium, and annotations only raise it. Schemas pass the schema guard. Capabilities come from the
person's grant alone.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from toolkeep.config.settings import Run
from toolkeep.definitions.argument_roles import NO_TOOL_FLOW, ToolFlow, with_flow
from toolkeep.definitions.capability import Capability
from toolkeep.definitions.imported import import_definition
from toolkeep.definitions.moved_definitions import with_moved_definitions
from toolkeep.definitions.tool_names import choose_names, kind_of
from toolkeep.definitions.vocabulary import CallKind, Category, Danger, SideEffect
from toolkeep.errors import Code, DefinitionError, DefinitionInvalid, Problem
from toolkeep.json_values.canonical import canonical_hash
from toolkeep.limits import DEFAULT_LIMITS, DESCRIPTION_CHARS, KIB
from toolkeep.mcp_client.pinned_tools import PinnedTools, described, fingerprint
from toolkeep.mcp_protocol.header_params import wrong_with_annotations
from toolkeep.mcp_protocol.jsonrpc import encode
from toolkeep.registry.admit import AdmittedBefore
from toolkeep.registry.coerce import Offer
from toolkeep.text.display import echo_name, shorten

TOOL_BYTES: Final = 256 * KIB
"""Maximum size of one tool's description, several times the largest accepted schema."""


class ImportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Import settings of a server, chosen by a person."""

    name: str
    capabilities: tuple[Capability, ...] = ()
    tools: tuple[str, ...] = ()
    """Allowlist of tools by the server's names; empty for all."""
    prompts: tuple[str, ...] = ()
    """Patterns of the prompts to pass on, by the server's names; empty for none."""
    resources: tuple[str, ...] = ()
    """Patterns of the resources to pass on, by URI or template; empty for none."""
    completions: tuple[str, ...] = ()
    """Patterns of `prompt:NAME` and `resource:TEMPLATE` whose arguments are completed; empty for none."""
    subscriptions: tuple[str, ...] = ()
    """Patterns of the passed on resources that can be subscribed to, by URI or template; empty for none."""
    dangers: Mapping[str, Danger] = {}
    effects: Mapping[str, SideEffect] = {}
    """What a person says that a tool does. `readOnlyHint` is the server's word: it could send under it."""
    flows: Mapping[str, ToolFlow] = {}
    """Argument roles, by tool name and argument pointer. Set by a person only: a server could call its
    recipient "content"."""
    target: Mapping[str, Any] = {}
    """Connection settings: `command` and related keys, or `url` and `headers`."""
    identity: Mapping[str, str] = {}
    """Identity: its `command` or `url`."""


def import_listing(
    listing: PinnedTools,
    wishes: ImportOptions,
    taken: Iterable[str] = (),
    admitted: AdmittedBefore | None = None,
) -> list[Offer]:
    """One offer per tool; a tool that cannot be imported carries the reason.

    `admitted` names output schemas that were compiled before, too.
    """
    originals = [str(tool.get("name", "")) for tool in listing.tools]
    names = choose_names(originals, upstream=wishes.name, taken=taken)
    offers: list[Offer] = []
    seen: set[str] = set()
    for tool, original in zip(listing.tools, originals, strict=True):
        if wishes.tools and original not in wishes.tools:
            continue
        # Two tools under one name: which one a call reaches would be the server's choice.
        if original in seen:
            offers.append(refused_offer(f"{wishes.name}_{len(offers)}", "is listed twice by its server"))
            continue
        seen.add(original)
        offers.append(_offer(tool, original, names[original], wishes, admitted))
    return offers


def _offer(
    tool: dict[str, Any], original: str, name: str, wishes: ImportOptions, admitted: AdmittedBefore | None
) -> Offer:
    if len(encode(described(tool))) > TOOL_BYTES:
        return refused_offer(name, f"is described in more than {TOOL_BYTES} bytes")
    pin = fingerprint(tool)
    if not pin:
        return refused_offer(name, "is described in numbers that cannot be compared")
    if "url" in wishes.target and (wrong := wrong_with_annotations(tool.get("inputSchema"))):
        return refused_offer(name, wrong)  # MUST be excluded over HTTP (2026-07-28, Tools)
    words = tool.get("description")
    data = {**tool, "description": shorten(words, DESCRIPTION_CHARS) if isinstance(words, str) else ""}
    output, warnings = _answers(data.pop("outputSchema", None), admitted)
    # A tool that is called like a pattern for prompts must not have the danger that a person gave to those.
    dangers = wishes.dangers if kind_of(original) is CallKind.TOOL else {}
    try:
        imported = import_definition(
            {**data, "outputSchema": output},
            kind="mcp",
            origin=wishes.name,
            name=name,
            # Category, capabilities and danger are ours; nothing of the server's own claims survives here.
            category=Category.EXTERNAL_API,
            capabilities=wishes.capabilities,
            # Hashed: callers can read a definition, and must not learn where the program lies.
            metadata={"server": canonical_hash(dict(wishes.identity))},
            **({"danger": dangers[original]} if original in dangers else {}),
            **({"side_effects": (wishes.effects[original],)} if original in wishes.effects else {}),
        )
        definition = with_flow(imported.definition, wishes.flows.get(original, NO_TOOL_FLOW))
    except (DefinitionError, ValueError) as error:
        return refused_offer(name, in_words(error))
    target = {**wishes.target, "upstream": wishes.name, "tool": original, "pin": pin}
    return Offer(
        tool=definition,
        name=name,
        runner=Run(kind="mcp", target=target),
        removed=imported.removed,
        warnings=(*imported.warnings, *warnings),
    )


def _answers(schema: Any, admitted: AdmittedBefore | None) -> tuple[Any, tuple[Problem, ...]]:
    """The output schema, or a warning if it cannot be used."""
    if schema is None:
        return None, ()
    reason = "is no schema"
    if isinstance(schema, dict):
        schema = with_moved_definitions(schema)
        key = f"output {canonical_hash(schema)}"  # no hash of a definition
        if admitted is not None and admitted.warnings_of(key) is not None:
            return schema, ()
        from toolkeep.validation.compile import compile_output

        made = compile_output(schema, by_hand=False, limits=DEFAULT_LIMITS)
        if made.compiled is not None:
            if admitted is not None:
                admitted.add(key, ())
            return schema, ()
        reason = made.problems[0].message if made.problems else reason
    problem = Problem(
        field="output_schema",
        code=Code.DEFINITION_INVALID,
        message=f"results are not checked: it {reason}",
        fix="report it to the author of the server",
    )
    return None, (problem,)


def refused_offer(name: str, reason: str, fix: str = "leave it out, with `tools`") -> Offer:
    """An offer that cannot be imported, and why."""
    problem = Problem(field="definition", code=Code.DEFINITION_INVALID, message=reason, fix=fix)
    return Offer(tool=DefinitionInvalid(echo_name(name), [problem]), name=echo_name(name))


def in_words(error: Exception) -> str:
    """The reason of a refused import, shortened."""
    if isinstance(error, DefinitionError):
        return "; ".join(f"{echo_name(problem.field)} {problem.message}" for problem in error.problems[:3])
    return str(error)
