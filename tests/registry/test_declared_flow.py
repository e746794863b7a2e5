"""Roles and labels that a person declared for an import: stored, followed, and never pinned."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.definitions.examples import made, made_elsewhere, with_properties
from toolkeep.definitions.vocabulary import Role, ToolState
from toolkeep.errors import DefinitionInvalid, NotAccepted
from toolkeep.registry.admit import admit
from toolkeep.registry.declared_flow import declared_tool, undeclared_tool
from toolkeep.registry.registry import LockedSets, ToolRegistry
from toolkeep.storage.sqlite.state_db import KeepState
from toolkeep.stores.registry_state import MemoryState, RegistryState

pytestmark = pytest.mark.spec("FLO-1", "REG-3")

TEXT = {"type": "string"}
FIRST = made_elsewhere(parameters=with_properties({"to": TEXT, "note": {**TEXT, "x-flow": "content"}}))
DECLARED: dict[str, Any] = {"/to": "destination", "result": {"": "text"}}


def opened(state: RegistryState, **options: Any) -> ToolRegistry:
    registry = ToolRegistry(state=state, **options)
    registry.add(admit(FIRST))
    return registry


def found(registry: ToolRegistry) -> tuple[dict[str, Role], dict[str, Any], ToolState]:
    tool = registry.get(FIRST.name)
    return tool.definition.roles, dict(tool.definition.flow), tool.state


WITH: Any = ({"to": Role.DESTINATION}, {"": "text"}, ToolState.ENABLED)
WITHOUT: Any = ({"note": Role.CONTENT}, {}, ToolState.ENABLED)


@pytest.mark.parametrize("is_stored", [True, False])
def test_it_replaces_what_the_definition_says_and_ends_with_the_pin(tmp_path: Path, is_stored: bool) -> None:
    state: RegistryState = KeepState(tmp_path) if is_stored else MemoryState()
    registry = opened(state)
    before = list(state.pins())
    assert list(state.flows()) == []  # also in a state of before, which has no table for it
    registry.declare_flow(FIRST.name, DECLARED, by="ada")
    (flow,) = state.flows()
    assert (flow.declared, flow.declared_by, flow.definition_hash) == (DECLARED, "ada", FIRST.hash)
    assert (found(registry), found(opened(state)), list(state.pins())) == (WITH, WITH, before)
    registry.declare_flow(FIRST.name, {}, by="ada")
    assert found(opened(state)) == ({}, {}, ToolState.ENABLED)
    labelled = undeclared_tool(registry.get(FIRST.name)).definition.replace(parameters={}, flow={"": "text"})
    assert declared_tool(admit(labelled), {}).definition.flow == {}
    registry.declare_flow(FIRST.name, None, by="ada")
    assert (found(registry), list(state.flows())) == (WITHOUT, [])
    registry.declare_flow(FIRST.name, DECLARED, by="ada")
    (pin,) = before
    state.replace_pins([pin.origin], before)
    assert list(state.flows()) == [flow]
    state.replace_pins([pin.origin], ())  # the upstream is removed
    assert list(state.flows()) == []


def test_another_process_follows_and_a_locked_tool_stays_callable(tmp_path: Path) -> None:
    state = KeepState(tmp_path)
    (pin,) = (opened(state), state.pins())[1]
    locked = LockedSets(frozenset([pin.origin]), {pin.key: pin.definition_hash})
    registry, other = opened(state, locked=locked), opened(KeepState(tmp_path))
    other.declare_flow(FIRST.name, DECLARED, by="ada")
    registry.follow()
    held = registry.get(FIRST.name)
    assert (found(registry), found(opened(state, locked=locked))) == (WITH, WITH)
    registry.follow()
    assert registry.get(FIRST.name) is held  # nothing changed, so nothing is made anew
    other.declare_flow(FIRST.name, None, by="ada")
    registry.follow()
    assert found(registry) == WITHOUT


def test_what_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    state = KeepState(tmp_path)
    registry = opened(state)
    for wrong in ({"/from": "target"}, {"/to": "boss"}, {"result": {"x": "text"}}, {"result": {"": "mine"}}):
        with pytest.raises(DefinitionInvalid):
            registry.declare_flow(FIRST.name, wrong, by="ada")
    assert (found(registry), list(state.flows())) == (WITHOUT, [])
    registry.add(admit(made(name="own")))
    with pytest.raises(NotAccepted):
        registry.declare_flow("own", DECLARED, by="ada")
    changed = ToolRegistry(state=state)
    changed.add(admit(FIRST.replace(description="Another.")))
    with pytest.raises(NotAccepted):
        changed.declare_flow(FIRST.name, DECLARED, by="ada")


def test_a_stored_declaration_that_cannot_be_used_holds_the_tool_back(tmp_path: Path) -> None:
    opened(KeepState(tmp_path)).declare_flow(FIRST.name, DECLARED, by="ada")
    with sqlite3.connect(tmp_path / "state.db") as connection:
        connection.execute('UPDATE declared_flows SET declared = \'{"/to":"boss"}\'')
    registry = opened(KeepState(tmp_path))
    assert found(registry) == ({"note": Role.CONTENT}, {}, ToolState.QUARANTINED)
    registry.declare_flow(FIRST.name, DECLARED, by="ada")
    assert found(registry) == WITH
