"""`toolkeep.lock`: the same bytes for the same content, read strictly, and differences in plain words."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.definitions.examples import made
from toolkeep import Keep, ToolDefinition
from toolkeep.compat.definition_diff import Weight
from toolkeep.definitions.vocabulary import ToolState
from toolkeep.errors import Code, LockInvalid
from toolkeep.registry.coerce import Offer
from toolkeep.registry.lockfile import Lock, differences, read_lock, write_lock
from toolkeep.registry.registry import CHANGED, LockedSets
from toolkeep.stores.registry_state import MemoryState, Pin

pytestmark = pytest.mark.spec("REG-3")

WHO = {"openapi:shop": {"url": "https://shop.example/v1", "title": "Shop", "version": "1.0"}}


def definition(name: str, description: str = "Asks.", **fields: Any) -> ToolDefinition:
    return made(name=name, description=description, source={"kind": "openapi", "origin": "shop"}, **fields)


def pin(tool: ToolDefinition, version: str = "1.0.0") -> Pin:
    return Pin(
        origin="openapi:shop",
        name=tool.name.lower(),
        definition_hash=tool.hash,
        version=version,
        definition=tool.to_dict(),
    )


def lock(*tools: ToolDefinition, who: Any = WHO) -> Lock:
    pins = [pin(tool) for tool in tools]
    return Lock(upstreams=who, tools={one.key: one for one in pins})


A, B = definition("a"), definition("b", "Tells.")


def test_one_line_for_each_upstream_and_each_tool_in_order() -> None:
    raw = write_lock(lock(B, A))
    lines = [json.loads(line) for line in raw.decode().splitlines()]
    assert [line.get("tool") for line in lines] == [None, None, "a", "b"]
    assert lines[1] == {"upstream": "openapi:shop", "identity": WHO["openapi:shop"]}
    assert lines[2]["hash"] == A.hash
    assert raw.endswith(b"}\n")


@given(st.permutations([definition(name) for name in "abcde"]))
def test_the_order_in_which_tools_came_changes_no_byte(tools: list[ToolDefinition]) -> None:
    assert write_lock(lock(*tools)) == write_lock(lock(*sorted(tools, key=lambda tool: tool.name)))


def test_what_is_written_is_read_back() -> None:
    assert read_lock(write_lock(lock(A, B)), "x") == lock(A, B)


def test_one_tool_more_is_one_line_more() -> None:
    before, after = (write_lock(one).splitlines() for one in (lock(A), lock(A, B)))
    assert [line for line in after if line not in before] == [after[-1]]
    assert [line for line in before if line not in after] == []


def edited(change: Any, line: int = 2) -> bytes:
    lines = write_lock(lock(A, B)).decode().splitlines()
    data = json.loads(lines[line])
    change(data)
    lines[line] = json.dumps(data)
    return "\n".join(lines).encode()


PACKAGE = b'{"upstream":"openapi:shop","package":"npm:ms","version":"1.0","integrity":"sha512-x"}'


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        pytest.param(edited(lambda d: d["definition"].update(description="Evil.")), 3, id="a definition edited"),
        pytest.param(edited(lambda d: d.update(hash="0" * 64)), 3, id="a hash edited"),
        pytest.param(edited(lambda d: d.update(tool="other")), 3, id="a name edited"),
        pytest.param(edited(lambda d: d.update(upstream="openapi:other")), 3, id="an upstream edited"),
        pytest.param(edited(lambda d: d.update(more=1)), 3, id="an unknown key"),
        pytest.param(edited(lambda d: d.pop("hash")), 3, id="no hash"),
        pytest.param(edited(lambda d: d.update(definition=5)), 3, id="no definition"),
        pytest.param(edited(lambda d: d["definition"].update(danger="none")), 3, id="a definition that cannot be"),
        pytest.param(edited(lambda d: d.update(identity=5), 1), 2, id="an identity that is none"),
        pytest.param(edited(lambda d: d.update({"toolkeep.lock": 3}), 0), 1, id="another version"),
        pytest.param(write_lock(lock(A)) + write_lock(lock(A)).splitlines()[2], 4, id="a tool twice"),
        pytest.param(write_lock(lock(A)) + write_lock(lock(A)).splitlines()[1], 4, id="an upstream twice"),
        pytest.param(write_lock(lock(A)) + PACKAGE.replace(b"shop", b"other"), 0, id="a package of nobody"),
        pytest.param(write_lock(lock(A)) + PACKAGE.replace(b"1.0", b"1.0\",\"url\":\""), 4, id="a package with more"),
        pytest.param(write_lock(lock(A)) + b"<<<<<<< ours\n", 4, id="merged by halves"),
        pytest.param(write_lock(lock(A)) + b"{", 4, id="cut"),
        pytest.param(write_lock(lock(A)) + b'{"a":1,"a":2}', 4, id="a key twice"),
        pytest.param(write_lock(lock(A)) + b"[]", 4, id="no object"),
        pytest.param(b"", 1, id="empty"),
        pytest.param(b"\n\n", 1, id="blank"),
        pytest.param(b"\xff\xfe", 1, id="no text"),
        pytest.param(b"\n".join([*write_lock(lock(A)).splitlines()[:1], *write_lock(lock(A)).splitlines()[2:]]), 0, id="tools of nobody"),
    ],
)  # fmt: skip
def test_a_lock_that_nobody_wrote_like_this_is_refused_with_its_line(raw: bytes, line: int) -> None:
    with pytest.raises(LockInvalid) as caught:
        read_lock(raw, "toolkeep.lock")
    assert (caught.value.code, caught.value.line) == (Code.LOCK_INVALID, line)


def told(before: Lock, after: Lock) -> list[str]:
    return [line for one in differences(before, after) for line in one.lines()]


TEXT = {"type": "object", "properties": {"q": {"type": "string"}}}
MORE = {
    "type": "object",
    "properties": {"q": {"type": "string"}, "n": {"type": "integer"}},
    "required": ["n"],
}


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        pytest.param(lock(A), lock(A), [], id="nothing"),
        pytest.param(lock(A), lock(A, definition("c", parameters=TEXT)), ["openapi:shop c: new (minor)"], id="an addition"),
        pytest.param(lock(A, definition("c", parameters=TEXT)), lock(A), ["openapi:shop c: removed (major)"], id="a removal"),
        pytest.param(lock(definition("c", parameters=TEXT)), lock(definition("d", parameters=TEXT)), ["openapi:shop c: renamed to 'd' (major)"], id="a rename"),
        pytest.param(
            lock(definition("c", parameters=TEXT)), lock(definition("d", "Sends.", parameters=TEXT)),
            ["openapi:shop c: renamed to 'd' (major)", "  description: changed (patch)"], id="a rename that dodges",
        ),
        pytest.param(lock(A), lock(definition("a", "Sends.")), ["openapi:shop a: changed (patch)", "  description: changed (patch)"], id="words"),
        pytest.param(
            lock(definition("c", parameters=TEXT)), lock(definition("c", parameters=MORE)),
            ["openapi:shop c: changed (major)", "  parameters/properties/n: new and required (major)"], id="a required parameter",
        ),
        pytest.param(lock(A), lock(A, who={"openapi:shop": {**WHO["openapi:shop"], "version": "2.0"}}), ['openapi:shop: version was "1.0" and is "2.0" (patch)'], id="another version"),
        pytest.param(lock(A), lock(A, who={"openapi:shop": {**WHO["openapi:shop"], "url": "https://evil.example"}}), ['openapi:shop: url was "https://shop.example/v1" and is "https://evil.example" (major)'], id="another address"),
        pytest.param(lock(), Lock(upstreams={}, tools={}), ["openapi:shop: is gone (major)"], id="an upstream gone"),
        pytest.param(Lock(upstreams={}, tools={}), lock(), ["openapi:shop: is new (major)"], id="an upstream new"),
    ],
)  # fmt: skip
def test_differences_are_told_in_plain_words(before: Lock, after: Lock, words: list[str]) -> None:
    assert told(before, after) == words


def test_a_difference_is_data_too() -> None:
    (one,) = differences(lock(A), lock(definition("a", "Sends.")))
    assert one.weight is Weight.PATCH
    assert one.to_dict() == {
        "upstream": "openapi:shop", "tool": "a", "what": "changed", "weight": "patch",
        "changes": ["description: changed (patch)"],
    }  # fmt: skip


# --- what a lock does to a keep ----------------------------------------------------------------------


class Shop:
    lists_whole_set = True
    name, priority = "upstream:shop", 200

    def __init__(self, *tools: ToolDefinition) -> None:
        self._tools = tools

    def get_tool_definitions(self) -> list[Offer]:
        return [Offer(tool=tool) for tool in self._tools]


def standing(locked: Lock | None, pins: Lock, *offered: ToolDefinition) -> dict[str, tuple[ToolState, str]]:
    state = MemoryState()
    state.replace_pins(["openapi:shop"], pins.tools.values())
    hashes = {key: one.definition_hash for key, one in locked.tools.items()} if locked else {}
    sets = LockedSets(frozenset(WHO), hashes) if locked else None
    keep = Keep(state=state, locked=sets)
    keep.load(Shop(*offered))
    return {tool.name: (tool.state, tool.why) for tool in keep.tools()}


CHANGED_A = definition("a", "Sends.")


@pytest.mark.parametrize(
    ("locked", "pins", "offered", "why"),
    [
        pytest.param(lock(A), lock(A), A, "", id="all agree"),
        pytest.param(lock(A), lock(), A, "toolkeep.lock names it, but it was not accepted here", id="from a clone"),
        pytest.param(lock(B), lock(A), A, "it is not in toolkeep.lock", id="not in the lock"),
        pytest.param(lock(CHANGED_A), lock(A), A, "toolkeep.lock names another definition than the one that was accepted here", id="the lock moved on"),
        pytest.param(lock(CHANGED_A), lock(A), CHANGED_A, CHANGED, id="lock and upstream moved on"),
        pytest.param(lock(A), lock(A), CHANGED_A, CHANGED, id="the upstream moved on"),
        pytest.param(None, lock(A), A, "", id="no lock"),
    ],
)  # fmt: skip
def test_a_lock_holds_back_and_never_lets_in(
    locked: Any, pins: Lock, offered: ToolDefinition, why: str
) -> None:
    expected = ToolState.QUARANTINED if why else ToolState.ENABLED
    assert standing(locked, pins, offered) == {"a": (expected, why)}


def test_a_lock_says_nothing_about_the_upstreams_of_the_user() -> None:
    state = MemoryState()
    keep = Keep(state=state, locked=LockedSets(frozenset({"openapi:other"}), {}))
    keep.load(Shop(A))
    assert keep.get("a").is_enabled
