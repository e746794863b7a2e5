"""The advice of a refusal leads to the call that was meant. Each line of `advice.jsonl` is one wrong call.

`says` and `never` are about the text without the signature; `|` separates words of which one is enough.
`at` lists the places that must be named, or one below. `repair`: `offered`, `none`, or `agrees` (none, or the
right one).
"""

import json
from pathlib import Path
from typing import Any

import pytest

from toolkeep import Keep, Refusal, ToolDefinition
from toolkeep.validation.repair import apply_patch

pytestmark = pytest.mark.spec("VAL-5")

CASES = [json.loads(line) for line in Path(__file__).with_name("advice.jsonl").read_text().splitlines()]


def _lapses(case: dict[str, Any], refusal: Refusal) -> list[str]:
    advice = refusal.text.replace(refusal.schema_hint, "").lower()
    paths = [error.path for error in refusal.errors]
    lapses = [
        f"does not say {words}"
        for words in case["says"]
        if not any(word.lower() in advice for word in words.split("|"))
    ]
    lapses += [f"says {words}" for words in case["never"] if words.lower() in advice]
    lapses += [
        f"does not name {places}"
        for places in case["at"]
        if not any(path == one or path.startswith(f"{one}/") for one in places.split("|") for path in paths)
    ]
    if refusal.repair is None:
        return lapses + ["offers no repair"] * (case["repair"] == "offered")
    if case["repair"] == "none" or apply_patch(case["wrong"], refusal.repair) != case["right"]:
        lapses.append(f"offers {refusal.repair}")
    return lapses


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_advice_leads_to_the_call_that_was_meant(case: dict[str, Any]) -> None:
    keep = Keep()
    keep.register(ToolDefinition.from_elsewhere({"name": "t", "parameters": case["schema"]}))
    check = keep.try_validate_arguments("t", json.dumps(case["wrong"]))
    assert isinstance(check, Refusal)
    assert _lapses(case, check) == [], check.text
