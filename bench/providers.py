"""Definitions for model providers: toolkeep beside the vendors' own helpers and pydantic-ai's transformers.

bench/run providers [--quick] [--data DIR]

In one run: how long 1,000 real tools take, how many come out as the provider's strict mode demands, what is
lost without a word, and how many of the real calls can still be said. See bench/README.md.
"""

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema_rs

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))

from tests.providers.vendors.corpus import real_calls, real_tools  # noqa: E402
from tests.providers.vendors.rules import (  # noqa: E402
    broken_claude_rules,
    broken_strict_rules,
    schemas_in,
)

from measures.statistics import median  # noqa: E402
from rivals.schema_helpers import Schema, helpers  # noqa: E402
from tables import print_notes, print_table  # noqa: E402
from toolkeep import Keep, ToolDefinition  # noqa: E402
from toolkeep.calls import RegisteredTool  # noqa: E402
from toolkeep.json_values.frozen import thaw  # noqa: E402
from toolkeep.providers.export import Omitted, prepare  # noqa: E402
from toolkeep.providers.schema_losses import Losses, NotExpressible  # noqa: E402
from toolkeep.providers.strict.codec import StrictCodec  # noqa: E402
from toolkeep.providers.vendor_registry import vendor_of  # noqa: E402

TOOLS = 1_000
PROVIDERS = {"OpenAI strict": "openai", "Claude strict": "anthropic", "Gemini": "gemini"}
RULES: dict[str, Callable[[Schema], Iterator[str]]] = {
    "OpenAI strict": broken_strict_rules,
    "Claude strict": broken_claude_rules,
}
ASSERTS = (
    "pattern", "format", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties",
    "enum", "const", "not", "anyOf", "oneOf", "allOf", "propertyNames", "dependentRequired",
    "patternProperties",
)  # fmt: skip


Says = Callable[[ToolDefinition, dict[str, Any]], bool]
Seconds = dict[tuple[str, str], list[float]]


class Lane(NamedTuple):
    """One way to make a provider's definitions."""

    target: str
    name: str
    make: Callable[[RegisteredTool], Schema | None]
    """The schema of a tool; None or an exception where there is none."""
    says: Says
    """Whether a call can be said, and reaches the tool as it was meant."""


def main() -> None:
    """Print the tables."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    options = parser.parse_args()
    every_other = real_tools(options.data)[::2][:TOOLS]
    calls = real_calls(options.data)
    lanes = [*ours(), *theirs()]
    seconds = timed(lanes, every_other, rounds=3 if options.quick else 9)
    rows = [row(lane, every_other, calls, seconds) for lane in lanes]
    heads = [
        "target",
        "by",
        "ms",
        "× toolkeep",
        "made",
        "conformant",
        "lost silently",
        "calls that can be said",
    ]
    print_table(f"{len(every_other)} real tools, {len(calls)} real calls", heads, rows)
    again = timed_again(every_other)
    print_notes(
        [
            "ms: for all tools, median of the rounds. × toolkeep: median of the ratios within a round.",
            "made: without an exception. conformant: the strict mode would take it.",
            "lost silently: tools of which an assertion is gone, in neither description nor report.",
            "calls said: those that the schema admits, and that reach the tool as they were meant.",
            f"a second keep.tools_for of the same tools takes toolkeep {again * 1000:.0f} ms (anthropic).",
        ]
    )


def ours() -> Iterator[Lane]:
    """toolkeep: names, descriptions and loss reports are part of what is timed."""
    for target, provider in PROVIDERS.items():
        vendor = vendor_of(provider)
        strict = target != "Gemini"

        def make(tool: RegisteredTool, vendor: Any = vendor, strict: bool = strict) -> Schema | None:
            made = prepare(tool, vendor, strict=strict)
            if isinstance(made, Omitted):
                return None
            vendor.shape(made.shown)
            if made.strict_schema is not None:
                return made.strict_schema
            return made.shown.schema if made.shown.is_strict or not strict else None

        yield Lane(target, "toolkeep", make, _said_by_codec if target == "OpenAI strict" else _said_by(make))


def _said_by_codec(definition: ToolDefinition, arguments: dict[str, Any]) -> bool:
    try:
        codec = StrictCodec(definition, Losses(definition.name))
        written = codec.encode(arguments)
    except NotExpressible:
        return False
    return _is_valid(codec.schema, written) and codec.decode(json.loads(json.dumps(written))) == arguments


def theirs() -> Iterator[Lane]:
    """The helpers of others: the schema alone."""
    for helper in helpers():

        def make(tool: RegisteredTool, of: Any = helper.make) -> Schema | None:
            made: Schema = of(thaw(tool.definition.parameters))
            return made

        yield Lane(helper.target, helper.name, make, _said_by(make))


def _said_by(
    make: Callable[[RegisteredTool], Schema | None],
) -> Callable[[ToolDefinition, dict[str, Any]], bool]:
    def says(definition: ToolDefinition, arguments: dict[str, Any]) -> bool:
        from toolkeep.registry.admit import admit

        try:
            schema = make(admit(definition))
        except Exception:
            return False
        if schema is None:  # not strict: sent as it is
            schema = thaw(definition.parameters)
        return "type" in schema and _is_valid(schema, arguments)

    return says


def _is_valid(schema: Schema, value: Any) -> bool:
    try:
        return bool(jsonschema_rs.Draft202012Validator(schema).is_valid(value))
    except Exception:
        return False


def timed(
    lanes: list[Lane], tools: list[RegisteredTool], *, rounds: int
) -> dict[tuple[str, str], list[float]]:
    """Seconds of each lane, round by round; another one goes first each round."""
    taken: Seconds = {(lane.target, lane.name): [] for lane in lanes}
    for number in range(rounds):
        for place in range(len(lanes)):
            lane = lanes[(place + number) % len(lanes)]
            began = time.process_time()
            for tool in tools:
                try:
                    lane.make(tool)
                except Exception:
                    continue
            taken[lane.target, lane.name].append(time.process_time() - began)
    return taken


def timed_again(tools: list[RegisteredTool]) -> float:
    keep = Keep()
    keep.register(*(tool.definition for tool in tools))
    keep.tools_for("anthropic")
    began = time.process_time()
    keep.tools_for("anthropic")
    return time.process_time() - began


def row(
    lane: Lane,
    tools: list[RegisteredTool],
    calls: list[tuple[ToolDefinition, dict[str, Any]]],
    seconds: Seconds,
) -> list[str]:
    """One line of the table."""
    mine, keeps = seconds[lane.target, lane.name], seconds[lane.target, "toolkeep"]
    made = [(tool, _made(lane, tool)) for tool in tools]
    there = [(tool, schema) for tool, schema in made if schema is not None]
    rules = RULES.get(lane.target)
    conformant = sum(not any(rules(schema)) for _, schema in there) if rules else None
    lost = sum(_loses(lane, tool, schema) for tool, schema in there)
    is_json_schema = lane.name != "google-genai"
    said = sum(lane.says(tool, arguments) for tool, arguments in calls) if is_json_schema else None
    return [
        lane.target,
        lane.name,
        f"{median(mine) * 1000:.0f}",
        f"{median([one / other for one, other in zip(mine, keeps, strict=True)]):.2f}",
        str(len(there)),
        "-" if conformant is None else str(conformant),
        str(lost),
        "-" if said is None else f"{said} ({100 * said / len(calls):.1f} %)",
    ]


def _made(lane: Lane, tool: RegisteredTool) -> Schema | None:
    try:
        return lane.make(tool)
    except Exception:
        return None


def _loses(lane: Lane, tool: RegisteredTool, schema: Schema) -> bool:
    """Whether an assertion is gone without a word."""
    text = json.dumps(schema)
    reported: set[str] = set()
    if lane.name == "toolkeep":
        vendor = vendor_of(PROVIDERS[lane.target])
        report = prepare(tool, vendor, strict=lane.target != "Gemini")
        if not isinstance(report, Omitted):
            reported = {loss.keyword for loss in (*report.losses, *report.strict_losses)}
    before = {keyword for part in schemas_in(thaw(tool.definition.parameters)) for keyword in part}
    return any(
        keyword in before and keyword not in reported and not _is_said(keyword, text) for keyword in ASSERTS
    )


def _is_said(keyword: str, text: str) -> bool:
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in keyword)
    return keyword in text or snake in text or (keyword == "const" and "enum" in text)


if __name__ == "__main__":
    main()
