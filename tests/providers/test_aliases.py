"""The names that providers know tools by."""

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkeep.definitions.tool_names import portable_name
from toolkeep.providers.aliases import alias_of, looks_like_an_alias, names_by_alias
from toolkeep.providers.vendor_registry import PROVIDERS, vendor_of


def names_in(shared_data: Path) -> list[str]:
    lines = (shared_data / "tools.jsonl").read_text(encoding="utf-8").splitlines()
    raw = [json.loads(line)["name"] for line in lines]
    return list(dict.fromkeys([*raw, *map(portable_name, raw)]))


@pytest.mark.spec("PRV-1")
@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_real_name_at_once_is_valid_unique_and_reversible(shared_data: Path, provider: str) -> None:
    profile = vendor_of(provider).profile
    names = names_in(shared_data)
    aliases = {name: alias_of(name, profile) for name in names}
    assert all(map(profile.takes_name, aliases.values()))
    assert len({alias.lower() for alias in aliases.values()}) == len({name.lower() for name in names})
    by_alias = names_by_alias(names, profile)
    assert all(by_alias[alias] == name for name, alias in aliases.items())


@pytest.mark.spec("PRV-1")
def test_an_alias_does_not_change_when_tools_come_go_or_change_places(shared_data: Path) -> None:
    profile = vendor_of("gemini").profile
    names = names_in(shared_data)
    before = {name: alias_of(name, profile) for name in names}
    shuffled = [*names, *(f"more_{number}" for number in range(100))]
    random.Random(2).shuffle(shuffled)  # noqa: S311 -- any order
    after = {name: alias_of(name, profile) for name in shuffled}
    assert {name: after[name] for name in names} == before


@pytest.mark.parametrize("provider", ["anthropic", "openai", "gemini", "mcp"])
@given(names=st.lists(st.text(min_size=1), min_size=2, max_size=6, unique=True))
def test_any_names_become_valid_ones_that_stay_apart(provider: str, names: list[str]) -> None:
    profile = vendor_of(provider).profile
    aliases = [alias_of(name, profile) for name in names]
    assert all(map(profile.takes_name, aliases))
    assert len(set(aliases)) == len(names)


@pytest.mark.parametrize("name", ["7zip", "-lead", "a.b", "x" * 65, "ein.Äpfel"])
def test_a_name_cannot_pass_for_the_alias_of_another(name: str) -> None:
    profile = vendor_of("openai").profile if name != "7zip" else vendor_of("gemini").profile
    alias = alias_of(name, profile)
    impostor = alias if alias != name else f"{name}_x{'0' * 16}"
    assert looks_like_an_alias(impostor)
    assert alias_of(impostor, profile) not in (impostor, alias)


def test_a_usual_name_is_its_own() -> None:
    for provider in PROVIDERS:
        assert alias_of("read_file", vendor_of(provider).profile) == "read_file"
