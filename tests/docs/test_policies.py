"""The page about policies names everything that a policy can see, every kind of capability and our own policies."""

import re

import pytest

from tests.docs.markdown import ROOT, blocks_of
from toolkeep.calls import Decision, FlowRecord, ShadowDecision
from toolkeep.cli.policy import COMMANDS
from toolkeep.definitions.parameter_marks import TOUCH_FORMS
from toolkeep.policy.active_policies import ALWAYS
from toolkeep.policy.cedar_parser import read_policies
from toolkeep.policy.cedar_schema import (
    AGENT_ATTRIBUTES,
    CONTEXT_ATTRIBUTES,
    ENTITY_TYPES,
    FLOW_SECTIONS,
    TOOL_ATTRIBUTES,
)
from toolkeep.policy.policy_settings import DEFAULT_GRANT, KNOWN_PERMISSIONS

PAGE = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """What stands under a heading of the page."""
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def first_column(title: str) -> list[str]:
    """The names in the first columns of the tables under a heading."""
    cells = re.findall(r"^\| (`[^|]+`) \|", section(title), re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


@pytest.mark.spec("DOC-1")
def test_everything_that_a_policy_can_see_is_on_the_page() -> None:
    attributes = [
        *(f"principal.{name}" for name in AGENT_ATTRIBUTES),
        *(f"resource.{name}" for name in TOOL_ATTRIBUTES),
        *(f"context.{name}" for name in ("arguments", *CONTEXT_ATTRIBUTES, *FLOW_SECTIONS)),
    ]
    shown = first_column("What policies can see")
    assert sorted(name for name in shown if "." in name) == sorted(attributes)
    assert set(ENTITY_TYPES) - {"Action"} <= set(shown)


@pytest.mark.spec("DOC-1")
@pytest.mark.parametrize("title", ["Capabilities", "What a call accesses"])
def test_every_kind_of_capability_is_on_the_page(title: str) -> None:
    assert [name for name in first_column(title) if name in TOUCH_FORMS] == list(TOUCH_FORMS)


@pytest.mark.spec("DOC-1")
def test_our_own_policies_and_the_default_grant_are_on_the_page() -> None:
    ours = [policy.id for policy in read_policies([ALWAYS]).policies]
    assert sorted(name for name in first_column("Writing policies") if name.startswith("toolkeep.")) == ours
    for held in (*map(str, DEFAULT_GRANT.capabilities), *DEFAULT_GRANT.permissions):
        assert f"`{held}`" in section("Grants of agents")


@pytest.mark.spec("DOC-1")
def test_every_field_of_a_decision_is_on_the_page_once() -> None:
    decision = Decision(
        policies=(),
        policy_set_hash="",
        request_hash="",
        capabilities=(),
        decided_at="",
        spared_by=("a",),
        asked_by=("b",),
        flow=FlowRecord(opened=False, origins={}, secret=False, session=""),
        shadow=ShadowDecision(decision="deny", policies=("c",)),
    )
    assert first_column("The decision as proof") == list(decision.to_dict())


@pytest.mark.spec("DOC-1")
@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_policy_command_is_on_the_page_and_on_that_of_the_command_line(name: str) -> None:
    assert f"$ toolkeep policy {name}" in PAGE
    assert f"`{name}`" in (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")


@pytest.mark.spec("DOC-1")
def test_every_known_permission_is_on_the_page() -> None:
    lists = [block.text.split() for block in blocks_of(PAGE) if block.text.startswith("tool.")]
    assert lists == [sorted(KNOWN_PERMISSIONS)]
