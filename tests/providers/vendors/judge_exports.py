"""Judges every export of the real tools by the vendors' own types."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from tests.providers.vendors.corpus import real_tools
from tests.providers.vendors.judges import JUDGES
from tests.providers.vendors.rules import broken_claude_rules, broken_rules, broken_strict_rules
from toolkeep.providers.export import Omitted, prepare
from toolkeep.providers.vendor_registry import PROVIDERS, vendor_of

LIKE_OTHERS = ("vllm", "xgrammar", "mcp-2025-11-25")
"""Those whose definitions are those of another provider, which is judged."""
STRICT = ("anthropic", "openai", "openai-responses")


def main(data: Path) -> dict[str, Any]:
    tools = real_tools(data)
    profiles = json.loads((data / "provider_profiles.json").read_text(encoding="utf-8"))
    report: dict[str, Any] = {"tools": len(tools)}
    for provider in PROVIDERS:
        if provider not in LIKE_OTHERS:
            report[provider] = judged(provider, tools, profiles, strict=False)
        if provider in STRICT:
            report[f"{provider} strict"] = judged(provider, tools, profiles, strict=True)
    return report


def judged(provider: str, tools: list[Any], profiles: dict[str, Any], *, strict: bool) -> dict[str, Any]:
    vendor = vendor_of(provider)
    counts: Counter[str] = Counter()
    bad: list[str] = []
    for tool in tools:
        made = prepare(tool, vendor, strict=strict)
        if isinstance(made, Omitted):
            counts["refused"] += 1
            continue
        counts["exported"] += 1
        kinds = {loss.became for loss in made.losses}
        counts["weakened"] += "weakened" in kinds
        counts["moved"] += "moved" in kinds
        counts["without loss"] += not kinds - {"kept"}
        shapes = [vendor.shape(made.shown)]
        faults: list[str] = []
        if made.strict_schema is not None:
            counts["strict"] += 1
            faults += broken_claude_rules(made.strict_schema)
        if made.shown.is_strict:
            counts["strict"] += 1
            faults += broken_strict_rules(made.shown.schema)
        for data in shapes:
            try:
                faults += [fault for fault in [JUDGES[provider](data)] if fault]
            except Exception as error:  # noqa: BLE001 -- whatever a vendor's type raises is a verdict
                faults.append(f"{type(error).__name__}: {str(error)[:200]}")
            faults += broken_rules(provider, data, profiles)
        bad += [f"{tool.name}: {fault}" for fault in faults[:1]]
    return {**counts, "bad": len(bad), "first": bad[:3]}
