"""The page about configuration names every key, and nothing else."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.docs.markdown import ROOT
from toolkeep.config.consent import LIMIT_FIELDS
from toolkeep.config.schema import FILE_SCHEMA, editor_schema
from toolkeep.definitions.serialization import OTHER_SPELLINGS
from toolkeep.definitions.tool import KEYS
from toolkeep.limits import DEFAULT_LIMITS
from toolkeep.registry.tiers import ALLOWANCES

PAGE = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
TOOL = editor_schema()["$defs"]["tool"]
USUAL = {
    **TOOL,
    "properties": {key: inside for key, inside in TOOL["properties"].items() if key not in OTHER_SPELLINGS},
}


def section(title: str) -> str:
    """What stands under a heading of the page."""
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def documented(title: str) -> list[str]:
    """The keys in the first columns of the tables under a heading."""
    return re.findall(r"^\| `([^`]+)` \|", section(title), re.MULTILINE)


def keys_of(schema: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """The keys that hold a value, dotted."""
    properties = schema.get("properties")
    if properties is None and isinstance(schema.get("additionalProperties"), dict):
        properties = {"NAME": schema["additionalProperties"]}
    if not properties:
        yield prefix
        return
    if isinstance(others := schema.get("additionalProperties"), dict):
        properties = {**properties, "NAME": others}
    for name, inside in properties.items():
        yield from keys_of(inside, f"{prefix}.{name}".lstrip("."))


@pytest.mark.spec("DOC-1")
def test_every_key_of_a_file_is_on_the_page_once() -> None:
    assert sorted(documented("Keys")) == sorted(keys_of(FILE_SCHEMA))


@pytest.mark.spec("DOC-1")
def test_every_key_of_a_custom_tool_and_every_way_to_run_it_is_on_the_page_once() -> None:
    assert sorted(documented("Custom tools")) == sorted(keys_of(USUAL))


def test_every_field_of_a_definition_can_be_configured_except_its_source() -> None:
    assert set(KEYS) - {"source"} == TOOL["properties"].keys() - {"run"} - OTHER_SPELLINGS.keys()


def test_keys_are_found_at_every_depth() -> None:
    assert {"tier", "features.tools.definition", "agents.NAME.capabilities"} <= set(keys_of(FILE_SCHEMA))
    assert {"name", "run.wasm.path", "constraints.required_isolation"} <= set(keys_of(USUAL))


@pytest.mark.parametrize(("key", "attribute"), LIMIT_FIELDS.items())
def test_a_limit_has_the_default_that_the_page_says(key: str, attribute: str) -> None:
    assert f"| `tool_registry.{key}` | integer | {getattr(DEFAULT_LIMITS, attribute):,} |" in PAGE


def test_the_table_of_tiers_is_true() -> None:
    rows = [line.strip("| ").split(" | ")[-4:] for line in section("Tiers").splitlines() if line[:1] == "|"]
    tiers, _, *includes = rows
    assert tiers == [f"`{tier.value}`" for tier in ALLOWANCES]
    for column, allowance in enumerate(ALLOWANCES.values()):
        custom = {0: "none", None: "any number"}.get(allowance.custom, str(allowance.custom))
        formats = "yes" if allowance.has_own_formats else "no"
        expected = [str(allowance.built_in), custom, f"`{allowance.isolation.value}`", formats]
        assert [row[column] for row in includes] == expected
