"""`toolkeep show`: show one tool, as text or data."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from toolkeep.authoring.declaration_advice import declaration
from toolkeep.calls import RegisteredTool
from toolkeep.cli.isolation_notice import say_unconfined
from toolkeep.cli.options import common, files, print_json, project, say, tools_option
from toolkeep.cli.tool_selection import complete_name, keep_with, named_tools
from toolkeep.config.settings import Run
from toolkeep.definitions.constraints import Constraints
from toolkeep.definitions.redacted_schema import public_schema
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.providers.vendor_registry import PROVIDERS
from toolkeep.text.display import visible
from toolkeep.validation.signature_hint import describe

_CONSTRAINTS = (
    "minLength", "maxLength", "pattern", "format", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties",
)  # fmt: skip


@click.command("show")
@click.argument("name", shell_complete=complete_name)
@click.option(
    "--format",
    "provider",
    metavar="PROVIDER",
    type=click.Choice(PROVIDERS),
    help="Print the definition for this model provider; what it does not support goes to stderr.",
)
@click.option("--strict", is_flag=True, help="With --format: for the provider's strict mode.")
@tools_option
@files
@project
@common
def command(
    name: str,
    tools: tuple[str, ...],
    files: tuple[Path, ...],
    project: Path | None,
    provider: str | None,
    *,
    strict: bool,
    as_json: bool,
) -> None:
    """Show the tool NAME, or NAME@VERSION: description, parameters and schema."""
    keep = keep_with(files, project, tools=named_tools(tools, project))
    tool = keep.get(name)
    if provider is not None:
        _print_format(tool, provider, strict=strict, as_json=as_json)
        return
    versions = keep.versions(tool.name)
    if as_json:
        print_json(_data(tool, versions))
        return
    for line in _lines(tool, versions):
        say(line)
    say_unconfined(keep, [tool])


def _print_format(tool: RegisteredTool, provider: str, *, strict: bool, as_json: bool) -> None:
    """The definition on stdout and what is lost on stderr; with --json both as data."""
    from toolkeep.providers.single_tool import exported_alone

    exported = exported_alone(tool, provider, strict=strict)
    if as_json:
        losses = [loss.to_dict() for loss in exported.losses]
        print_json({"provider": provider, "definition": exported[0], "losses": losses})
        return
    print_json(exported[0])
    for loss in exported.losses:
        place = f"{visible(loss.pointer) or '/'} {visible(loss.keyword)}"
        say(f" {place}: {visible(loss.note)}", label=f"[{loss.became}]", color="yellow", err=True)


def _public(definition: ToolDefinition) -> dict[str, Any]:
    return public_schema(definition.parameters, is_sensitive=definition.sensitive)


def _data(tool: RegisteredTool, versions: Sequence[RegisteredTool]) -> dict[str, Any]:
    return {
        **tool.definition.to_dict(),
        "parameters": _public(tool.definition),
        "signature": tool.arguments.hint(tool.name),
        "definition_hash": tool.definition_hash,
        "state": tool.state.value,
        "why": tool.why,
        "provider": tool.provider,
        "versions": [
            {"version": held.version, "state": held.state.value, "changes": changes}
            for held, changes in _with_changes(versions)
        ],
        "warnings": [warning.to_dict() for warning in tool.warnings],
    }


def _with_changes(versions: Sequence[RegisteredTool]) -> Iterator[tuple[RegisteredTool, list[str]]]:
    """Each version with how it differs from the one before it."""
    yield from zip(versions, (*map(_changes, versions, versions[1:]), []), strict=True)


def _changes(new: RegisteredTool, old: RegisteredTool) -> list[str]:
    from toolkeep.compat.definition_diff import changes_between

    return list(map(str, changes_between(old.definition, new.definition)))


def _where(constraints: Constraints) -> Iterator[str]:
    if constraints.required_isolation:
        yield f"Isolation: {constraints.required_isolation.value}"
    if constraints.runs_on is not None:
        yield f"Runs on: {visible(constraints.runs_on) or 'any worker'}"


def _lines(tool: RegisteredTool, versions: Sequence[RegisteredTool]) -> Iterator[str]:
    definition = tool.definition
    schema = _public(definition)
    yield f"Tool: {definition.name}"
    yield f"Version: {definition.version}"
    yield f"Category: {definition.category.value} (risk: {definition.category.risk})"
    yield f"Danger: {definition.danger_level.value}"
    yield from _said("Description", definition.description)
    if definition.usage_metadata:
        yield from _said("Usage", definition.usage_metadata)
    if definition.side_effects is not None:
        yield "Side effects: " + ", ".join(effect.value for effect in definition.side_effects)
    elif tool.is_undeclared:
        line = declaration(definition, tool.runner)
        yield f"Side effects: not declared, so every call needs approval. Declare them: {line}"
    if definition.capabilities:
        yield "Capabilities: " + ", ".join(visible(str(held)) for held in definition.capabilities)
    yield from _where(definition.constraints)
    if isinstance(tool.runner, Run):
        yield f"Runs: {tool.runner.kind} {visible(json.dumps(tool.runner.target, ensure_ascii=False))}"
    yield f"State: {tool.state.value}" + (f" ({tool.why})" if tool.why else "")
    yield f"Provider: {tool.provider}" + (" (built in)" if tool.is_built_in else "")
    if len(versions) > 1:
        yield "Versions: " + ", ".join(f"{held.version} ({held.state.value})" for held in versions)
        for held, changes in _with_changes(versions):
            yield from (f"    {held.version} {visible(one)}" for one in changes)
    yield f"Hash: {tool.definition_hash}"
    for warning in tool.warnings:
        yield f"Warning: {visible(str(warning))}"
    yield ""
    yield f"Signature: {tool.arguments.hint(tool.name)}"
    yield ""
    yield "Parameters:"
    properties = schema.get("properties", {})
    for name, inside in properties.items():
        is_required = name in schema.get("required", ())
        yield from _parameter(name, inside, schema, is_required=is_required)
        if name in definition.secret_parameters:
            yield "    Secret: its value is never shown"
    if not properties:
        yield "  (none)"
    yield ""
    yield "Schema (JSON):"
    yield from json.dumps(schema, indent=2, ensure_ascii=False).split("\n")


def _said(label: str, text: str) -> Iterator[str]:
    """Text of several lines, indented so that it cannot pass for ours."""
    first, *more = text.split("\n")
    yield f"{label}: {first}"
    yield from (f"    {line}" for line in more)


def _parameter(name: str, inside: Any, schema: dict[str, Any], *, is_required: bool) -> Iterator[str]:
    yield f"  {visible(name)} ({describe(inside, schema)}, {'required' if is_required else 'optional'})"
    if not isinstance(inside, dict):
        return
    if inside.get("description"):
        yield from _said("    Description", str(inside["description"]))
    if "default" in inside:
        yield f"    Default: {json.dumps(inside['default'], ensure_ascii=False)}"
    if "enum" in inside:
        yield "    Allowed: " + ", ".join(json.dumps(value, ensure_ascii=False) for value in inside["enum"])
    limits = [f"{key}={json.dumps(inside[key], ensure_ascii=False)}" for key in _CONSTRAINTS if key in inside]
    if limits:
        yield f"    Constraints: {', '.join(limits)}"
