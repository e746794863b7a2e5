"""What a machine can enforce is looked at once for each level, by the first call that has it."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from toolkeep.calls import RegisteredTool
from toolkeep.execution import isolation_check
from toolkeep.execution.isolation_check import IsolationCheck, UnconfinedTools
from toolkeep.sandbox.errors import SandboxUnavailable
from toolkeep.sandbox.isolation_levels import Isolation, Mechanism, needed
from toolkeep.sandbox.kernel_probe import Finding, Findings


def test_each_level_is_looked_at_once_and_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Sequence[Isolation]] = []

    def probe(*, levels: Sequence[Isolation]) -> Findings:
        looked.append(levels)
        return Findings(tuple(Finding(one, works=True) for level in levels for one in needed(level)))

    async def main() -> list[Mechanism | None]:
        here = IsolationCheck()
        bounds = [here.tree_bound]
        for level in (Isolation.RESTRICTED, Isolation.STRICT):
            (await here.findings(level)).require(level)
            bounds.append(here.tree_bound)
        await asyncio.gather(*(here.findings(Isolation.STRICT) for _ in range(3)))
        return bounds

    monkeypatch.setattr(isolation_check, "probe", probe)
    assert asyncio.run(main()) == [None, None, Mechanism.MEMORY_CGROUP]
    assert looked == [(Isolation.RESTRICTED,), (Isolation.STRICT,)]


def test_a_worker_of_one_process_needs_no_bound_of_a_tree_and_no_rehearsal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[dict[str, object]] = []

    def probe(**asked: object) -> Findings:
        looked.append(asked)
        has_processes = bool(asked["has_processes"])
        working = needed(Isolation.STRICT, has_processes=False)
        return Findings(tuple(Finding(one, works=True) for one in working), has_processes=has_processes)

    async def main() -> None:
        here = IsolationCheck()
        assert here.known_mechanisms(Isolation.STRICT, has_processes=False) is None
        found = await here.mechanisms(Isolation.STRICT, has_processes=False)
        assert here.known_mechanisms(Isolation.STRICT, has_processes=False) is found
        found.require(Isolation.STRICT)
        several = await here.mechanisms(Isolation.STRICT, has_processes=True)
        with pytest.raises(SandboxUnavailable, match="memory-bound"):
            several.require(Isolation.STRICT)

    monkeypatch.setattr(isolation_check, "probe", probe)
    asyncio.run(main())
    assert [asked["rehearsal"] for asked in looked] == [None, None]


def named(kind: str, name: str, target: object = None, provider: str = "project") -> RegisteredTool:
    """A tool as far as its confinement is decided by it."""
    runner = SimpleNamespace(kind=kind, target=target)
    return cast("RegisteredTool", SimpleNamespace(name=name, provider=provider, runner=runner))


@pytest.mark.spec("SBX-1")
@pytest.mark.parametrize(
    ("tool", "is_included"),
    [
        (named("built_in", "read_file"), True),
        (named("built_in", "write_file"), False),
        (named("command", "read_file"), True),
        (named("command", "read_file", provider="store"), False),
        (named("python", "shout", "/home/ada/tools.py:shout"), True),
        (named("python", "shout", "/home/ada/others.py:shout"), False),
        (named("mcp", "search", {"upstream": "shop", "command": ["shop"]}), True),
        # Its name is the server's choice.
        (named("mcp", "read_file", {"upstream": "other", "command": ["other"]}), False),
        (named("mcp", "search", {"upstream": "shop", "url": "https://shop.example"}), False),
        (named("http", "read_file"), False),
    ],
)
def test_a_tool_is_named_by_the_kind_of_name_that_it_answers_to(
    tool: RegisteredTool, is_included: bool
) -> None:
    unconfined = UnconfinedTools(["read_file", "/home/ada/tools.py", "shop"])
    assert unconfined.includes(tool) is is_included


@pytest.mark.spec("SBX-1")
@pytest.mark.parametrize("is_available", [True, False])
def test_what_is_named_is_confined_where_the_machine_can(
    is_available: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def probe(*, levels: Sequence[Isolation]) -> Findings:
        return Findings(tuple(Finding(one, works=is_available) for level in levels for one in needed(level)))

    async def main() -> list[bool]:
        here, tool = IsolationCheck(UnconfinedTools(["read_file"])), named("built_in", "read_file")
        before = here.is_unconfined(tool, Isolation.STRICT)
        await here.findings(Isolation.STRICT)
        return [before, here.is_unconfined(tool, Isolation.STRICT)]

    monkeypatch.setattr(isolation_check, "probe", probe)
    assert asyncio.run(main()) == [False, not is_available]
