"""The tools of a server become offers: each a tool, or the reason why there is none.

Nothing that the server says is trusted: words are cleaned and read, danger is at least medium and annotations
only raise it, schemas go through the guard, and what a tool may reach is what a person granted to its server.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from toolkeep.canonical import canonical_hash
from toolkeep.config.settings import Run
from toolkeep.definitions.capability import Capability
from toolkeep.definitions.elsewhere import import_definition
from toolkeep.definitions.naming import choose_names
from toolkeep.definitions.roles import with_roles
from toolkeep.definitions.vocabulary import Category, Danger, Role
from toolkeep.errors import Code, DefinitionError, DefinitionInvalid, Problem
from toolkeep.limits import DEFAULT_LIMITS, DESCRIPTION_CHARS, KIB
from toolkeep.registry.given import Offer
from toolkeep.sources.mcp.listing import Listing, described, fingerprint
from toolkeep.validation.compiler import compile_output
from toolkeep.wire.messages import encode
from toolkeep.wire.mirrored import wrong_with_annotations
from toolkeep.wording import echo_name, shorten

TOOL_BYTES: Final = 256 * KIB
"""Of all that describes one tool, several times the largest schema that is taken: its words are read."""


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What a person said about a server."""

    name: str
    capabilities: tuple[Capability, ...] = ()
    tools: tuple[str, ...] = ()
    """Only these, by the server's names; all where there are none."""
    dangers: Mapping[str, Danger] = {}
    roles: Mapping[str, Mapping[str, Role]] = {}
    """What a person said of arguments, by the name of a tool and the pointer of an argument."""
    target: Mapping[str, Any] = {}
    """How it is reached: `command` with its companions, or `url` and `headers`."""
    identity: Mapping[str, str] = {}
    """Who it is: its `command` or its `url`."""


def import_listing(listing: Listing, wishes: Wishes, taken: Iterable[str] = ()) -> list[Offer]:
    """An offer for each tool, the reason in it where it cannot be imported."""
    originals = [str(tool.get("name", "")) for tool in listing.tools]
    names = choose_names(originals, upstream=wishes.name, taken=taken)
    offers: list[Offer] = []
    seen: set[str] = set()
    for tool, original in zip(listing.tools, originals, strict=True):
        if wishes.tools and original not in wishes.tools:
            continue
        if original in seen:
            offers.append(_refused(f"{wishes.name}_{len(offers)}", "is listed twice by its server"))
            continue
        seen.add(original)
        offers.append(_offer(tool, original, names[original], wishes))
    return offers


def _offer(tool: dict[str, Any], original: str, name: str, wishes: Wishes) -> Offer:
    if len(encode(described(tool))) > TOOL_BYTES:
        return _refused(name, f"is described in more than {TOOL_BYTES} bytes")
    pin = fingerprint(tool)
    if not pin:
        return _refused(name, "is described in numbers that nobody can compare")
    if "url" in wishes.target and (wrong := wrong_with_annotations(tool.get("inputSchema"))):
        return _refused(name, wrong)  # MUST be left out where there are headers (2026-07-28, Tools)
    words = tool.get("description")
    data = {**tool, "description": shorten(words, DESCRIPTION_CHARS) if isinstance(words, str) else ""}
    output, warnings = _answers(data.pop("outputSchema", None))
    try:
        imported = import_definition(
            {**data, "outputSchema": output}, kind="mcp", origin=wishes.name, name=name
        )
        described_so = with_roles(imported.definition, wishes.roles.get(original, {}))
    except (DefinitionError, ValueError) as error:
        return _refused(name, _in_words(error))
    raised = imported.definition.danger or Danger.MEDIUM
    definition = described_so.replace(
        category=Category.EXTERNAL_API,
        capabilities=wishes.capabilities,
        danger=wishes.dangers.get(original, raised),
        # Its hash: a definition is read by those who call it, and where a program lies is not theirs.
        metadata={"server": canonical_hash(dict(wishes.identity))},
    )
    target = {**wishes.target, "upstream": wishes.name, "tool": original, "pin": pin}
    return Offer(
        tool=definition,
        name=name,
        runner=Run(kind="mcp", target=target),
        suspicion=imported.held_back,
        warnings=(*imported.warnings, *warnings),
    )


def _answers(schema: Any) -> tuple[Any, tuple[Problem, ...]]:
    """The schema of its results, or why they are not checked."""
    if schema is None:
        return None, ()
    made = compile_output(schema, by_hand=False, limits=DEFAULT_LIMITS) if isinstance(schema, dict) else None
    if made is not None and made.compiled is not None:
        return schema, ()
    reason = made.problems[0].message if made is not None and made.problems else "is no schema"
    problem = Problem(
        field="output_schema",
        code=Code.DEFINITION_INVALID,
        message=f"results are not checked: it {reason}",
        mend="ask whoever wrote the server",
    )
    return None, (problem,)


def _refused(name: str, reason: str) -> Offer:
    problem = Problem(
        field="definition", code=Code.DEFINITION_INVALID, message=reason, mend="leave it out, with `tools`"
    )
    return Offer(tool=DefinitionInvalid(echo_name(name), [problem]), name=echo_name(name))


def _in_words(error: Exception) -> str:
    if isinstance(error, DefinitionError):
        return "; ".join(f"{echo_name(problem.field)} {problem.message}" for problem in error.problems[:3])
    return str(error)
