"""Export definitions: an agent's tools in the format of one provider, with what was lost or omitted.

A tool that cannot be exported is omitted with its reason and never fails the request. The same tools give the
same bytes, so that the provider's cache hits.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from toolkeep.calls import RegisteredTool
from toolkeep.definitions.secret_subschemas import has_secret
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.errors import Code, Problem
from toolkeep.json_values.frozen import thaw
from toolkeep.providers.aliases import alias_of
from toolkeep.providers.anthropic_strict import StrictCost, packed, strict_form
from toolkeep.providers.profiles import Profile
from toolkeep.providers.schema_adaptation import CLOSED_ROOT, fitted
from toolkeep.providers.schema_losses import Loss, Losses, NotExpressible
from toolkeep.providers.strict.codec import StrictCodec
from toolkeep.providers.vendor import CALLERS, Shown, Vendor

EXAMPLES = "examples"
"""The metadata key for examples of arguments."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How tools are exported."""

    strict: bool = False
    loaded: tuple[str, ...] | None = None
    """The tools that the model sees at once; the others it finds by the provider's search."""
    cache: bool = False
    """Whether to mark where the provider may cache."""


PLAIN_EXPORT = Options()

_NO_OTHERS = "It takes no other parameters."


class Omitted(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that is not sent, and why."""

    tool: str
    problem: Problem

    def to_dict(self) -> dict[str, Any]:
        """The omission as JSON data."""
        return {"tool": self.tool, **self.problem.to_dict()}


class Exported(list[dict[str, Any]]):
    """The tools in the provider's format, with notes about them."""

    def __init__(
        self,
        tools: Iterable[dict[str, Any]],
        *,
        provider: str,
        losses: Sequence[Loss],
        omitted: Sequence[Omitted],
        aliases: dict[str, str],
    ) -> None:
        super().__init__(tools)
        self.provider = provider
        self.losses = tuple(losses)
        """What happened to everything that the provider cannot express as written."""
        self.omitted = tuple(omitted)
        """The tools that were left out."""
        self.aliases = aliases
        """The name of each tool by the provider's name."""


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """One tool, prepared for a provider."""

    shown: Shown
    losses: tuple[Loss, ...]
    strict_schema: dict[str, Any] | None = None
    """Its strict form, if it has one and the budgets allow it."""
    strict_losses: tuple[Loss, ...] = ()
    cost: StrictCost | None = None


def prepare(tool: RegisteredTool | ToolDefinition, vendor: Vendor, *, strict: bool) -> Prepared | Omitted:
    """One tool for one provider."""
    definition = tool if isinstance(tool, ToolDefinition) else tool.definition
    profile = vendor.profile
    losses = Losses(definition.name)
    try:
        schema, is_strict = _schema(definition, profile, losses, strict=strict)
        form = _subset(definition, profile) if strict and profile.strict == "subset" else None
    except NotExpressible as error:
        return _omitted(definition.name, profile, error)
    shown = Shown(
        alias=alias_of(definition.name, profile),
        definition=definition,
        schema=schema,
        is_strict=is_strict,
        note=_NO_OTHERS if any(loss.note == CLOSED_ROOT for loss in losses.all()) else "",
        examples=_examples(tool, vendor, losses),
    )
    _note_extras(definition, vendor, losses)
    if not isinstance(form, tuple):
        if form is not None:
            losses.note("", "strict", "refused", form.reason)
        return Prepared(shown=shown, losses=losses.all())
    inside, noted = form
    return Prepared(
        shown=shown,
        losses=losses.all(),
        strict_schema=inside.schema,
        strict_losses=noted.all(),
        cost=inside.cost,
    )


def _schema(
    definition: ToolDefinition, profile: Profile, losses: Losses, *, strict: bool
) -> tuple[dict[str, Any], bool]:
    if profile.strict == "codec" and (strict or profile.is_always_strict):
        noted = Losses(definition.name)
        try:
            schema = StrictCodec(definition, noted).schema
        except NotExpressible as error:
            if profile.is_always_strict:
                raise
            losses.note(error.pointer, "strict", "refused", error.reason)
        else:
            losses.take(noted)
            return schema, True
    return fitted(definition, profile, losses), False


def _subset(definition: ToolDefinition, profile: Profile) -> Any:
    """The form inside the subset with its losses, or why there is none."""
    noted = Losses(definition.name)
    try:
        return strict_form(definition, profile, noted), noted
    except NotExpressible as error:
        return error


def _examples(
    tool: RegisteredTool | ToolDefinition, vendor: Vendor, losses: Losses
) -> tuple[dict[str, Any], ...]:
    """The examples in the metadata that are valid calls; none for a sensitive tool."""
    definition = tool if isinstance(tool, ToolDefinition) else tool.definition
    given = thaw(definition.metadata.get(EXAMPLES))
    if not isinstance(given, list) or not given:
        return ()
    if "examples" not in vendor.features:
        losses.note("", "examples", "weakened", f"{vendor.profile.name} has no place for them")
        return ()
    if definition.sensitive or has_secret(definition.parameters):
        losses.note("", "examples", "refused", "the tool has secrets")
        return ()
    compiled = None if isinstance(tool, ToolDefinition) else tool.arguments
    good = [
        example
        for example in given
        if isinstance(example, dict)
        and (compiled is None or (compiled.affords(example) and compiled.is_valid(example)))
    ]
    if len(good) < len(given):
        losses.note("", "examples", "refused", "some are not valid calls")
    return tuple(good)


def _note_extras(definition: ToolDefinition, vendor: Vendor, losses: Losses) -> None:
    profile = vendor.profile
    for family in ("anthropic", "openai"):
        own = definition.metadata.get(family)
        is_theirs = profile.name.startswith(family) and "callers" in vendor.features
        if isinstance(own, dict) and own.get(CALLERS) and not is_theirs:
            losses.note("", CALLERS, "weakened", f"{profile.name} has no allowed_callers")
    if definition.output_schema is not None and "outputs" not in vendor.features:
        losses.note("", "output_schema", "weakened", f"{profile.name} takes no output schema")
    most = profile.description_chars
    if most is not None and len(definition.full_description) > most:
        losses.note("", "description", "kept", f"longer than {most} characters, which some models refuse")


def _omitted(name: str, profile: Profile, error: NotExpressible) -> Omitted:
    field = f"parameters{error.pointer}"
    message = f"{profile.name} cannot express it: {error.reason}"
    problem = Problem(field=field, code=Code.NOT_EXPRESSIBLE, message=message, fix=error.fix)
    return Omitted(tool=name, problem=problem)


def gathered(prepared: Iterable[Prepared | Omitted], vendor: Vendor, options: Options) -> Exported:
    """The tools of one request."""
    profile = vendor.profile
    omitted = [one for one in prepared if isinstance(one, Omitted)]
    losses: list[Loss] = []
    kept: list[Prepared] = []
    aliases: dict[str, str] = {}
    fields = 0
    for one in prepared:
        if isinstance(one, Omitted):
            continue
        name, alias = one.shown.definition.name, one.shown.alias
        fields += len(one.shown.schema.get("properties", {}))
        if error := _over(profile, options, kept, fields, is_taken=alias in aliases):
            fields -= len(one.shown.schema.get("properties", {}))
            omitted.append(_omitted(name, profile, error))
            continue
        aliases[alias] = name
        kept.append(one)
    strict = packed([(one.shown.definition, one.cost) for one in kept if one.cost is not None])
    made = [_shaped(one, vendor, options, strict, losses) for one in kept]
    return Exported(
        _as_request(made, vendor, options, losses),
        provider=profile.name,
        losses=losses,
        omitted=omitted,
        aliases=aliases,
    )


def _over(
    profile: Profile,
    options: Options,
    kept: Sequence[Prepared],
    fields: int,
    *,
    is_taken: bool,
) -> NotExpressible | None:
    """Why one more tool does not fit into a request."""
    if is_taken:
        return NotExpressible("another tool has the same name there", "rename one of them")
    if profile.max_tools is not None and len(kept) >= profile.max_tools:
        return NotExpressible(f"it takes at most {profile.max_tools} tools", "show the agent fewer tools")
    if options.strict and profile.strict_fields is not None and fields > profile.strict_fields:
        reason = f"its strict mode takes at most {profile.strict_fields} parameters in all"
        return NotExpressible(reason, "show the agent fewer tools")
    return None


def _shaped(
    one: Prepared, vendor: Vendor, options: Options, strict: set[str], losses: list[Loss]
) -> dict[str, Any]:
    shown = one.shown
    name = shown.definition.name
    is_deferred = options.loaded is not None and name not in options.loaded
    if is_deferred and "deferred" not in vendor.features:
        note = f"{vendor.profile.name} has no tool search; the tool is sent with the request"
        losses.append(Loss(tool=name, pointer="", keyword="loaded", became="weakened", note=note))
        is_deferred = False
    if one.strict_schema is not None and name in strict:
        losses += one.strict_losses
        shown = msgspec.structs.replace(
            shown, schema=one.strict_schema, is_strict=True, is_deferred=is_deferred
        )
    else:
        losses += one.losses
        if one.cost is not None:
            note = "the limit on strict tools is used up by more dangerous ones"
            losses.append(Loss(tool=name, pointer="", keyword="strict", became="refused", note=note))
        shown = msgspec.structs.replace(shown, is_deferred=is_deferred)
    data: dict[str, Any] = thaw(vendor.shape(shown))
    return data


def _as_request(
    made: list[dict[str, Any]], vendor: Vendor, options: Options, losses: list[Loss]
) -> list[dict[str, Any]]:
    name = vendor.profile.name
    if any(tool.get("defer_loading") for tool in made) and vendor.search_tool is not None:
        made = [dict(vendor.search_tool), *made]
    if options.cache and "cache" in vendor.features:
        made = vendor.mark_cache(made)
    if options.strict and vendor.profile.strict == "none" and vendor.profile.strict_fields is None:
        note = f"{name} has no strict flag for a single tool; set strict mode in the request, if it has one"
        losses.append(Loss(tool="", pointer="", keyword="strict", became="weakened", note=note))
    return vendor.gather(made)
