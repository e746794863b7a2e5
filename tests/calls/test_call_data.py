"""Per-call data: from the host to the tool's context, and nowhere else but as its HMAC (DEF-14)."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import pytest

from toolkeep import Answer, Code, Depends, Keep, Question, ToolContext, tool
from toolkeep.keep.call_state import DATA_BYTES
from toolkeep.stores.records import MemoryRecord

pytestmark = pytest.mark.spec("DEF-14")


@tool(effects="none", determinism="Pure")
def tenant(context: ToolContext) -> Any:
    """The tenant of this call."""
    return dict(context.data)


@pytest.fixture
def keep() -> Iterator[Keep]:
    with Keep(record=MemoryRecord()) as keep:
        keep.register(tenant)
        yield keep


def test_a_tool_reads_what_the_host_passes_with_the_call(keep: Keep) -> None:
    assert keep.call_sync("tenant", {}, data={"tenant": "acme"}).value == {"tenant": "acme"}
    assert keep.call_sync("tenant", {}).value == {}


def test_a_dependency_reads_it_too(keep: Keep) -> None:
    def name(context: ToolContext) -> str:
        return str(context.data["tenant"])

    @tool(effects="none")
    def named(who: Annotated[str, Depends(name)]) -> str:
        """Name."""
        return who

    keep.register(named)
    assert keep.call_sync("named", {}, data={"tenant": "acme"}).value == "acme"


def test_one_tenant_never_gets_what_was_cached_for_another(keep: Keep) -> None:
    datas: list[dict[str, Any] | None] = [None, {"tenant": "a"}, {"tenant": "b"}]
    assert [keep.call_sync("tenant", {}, data=data).value or None for data in datas] == datas


def test_an_idempotency_key_is_bound_to_the_data(keep: Keep) -> None:
    first = keep.call_sync("tenant", {}, data={"tenant": "a"}, idempotency_key="1")
    same = keep.call_sync("tenant", {}, data={"tenant": "a"}, idempotency_key="1")
    other = keep.call_sync("tenant", {}, data={"tenant": "b"}, idempotency_key="1")
    assert (first.ok, same.is_repeated, other.code) == (True, True, Code.KEY_CONFLICT)


@pytest.mark.parametrize("reach", ["session", "rule"])
@pytest.mark.parametrize("datas", [("a", "a", "b"), (None, None, "a"), ("a", "a", None)])
def test_a_remembered_approval_covers_the_same_data_only(
    reach: Literal["session", "rule"], datas: tuple[str | None, ...]
) -> None:
    asked: list[str] = []

    def agree(question: Question) -> Answer:
        asked.append(question.id)
        return Answer(verdict="approve", approver="ada", way="program", reach=reach)

    with Keep(approver=agree) as keep:
        keep.register(tool(danger="medium", effects="none")(tenant.function))
        for name in datas:
            assert keep.call_sync("tenant", {}, session="s", data={"tenant": name} if name else None).ok
    assert len(asked) == 2


def test_the_record_holds_its_hmac_alone(keep: Keep) -> None:
    result = keep.call_sync("tenant", {}, data={"tenant": "acme-industries"})
    records = keep.record.records_of(result.call_id)
    (found,) = [one["data_hash"] for one in records if one["type"] == "ToolInvoked"]
    assert len(found) == 64
    assert "acme" not in str(records)
    plain = keep.record.records_of(keep.call_sync("tenant", {}).call_id)
    assert not any("data_hash" in one for one in plain)


def test_a_call_with_data_is_not_replayed_without_it(keep: Keep) -> None:
    import asyncio

    from toolkeep.errors import NotRecorded

    result = keep.call_sync("tenant", {}, data={"tenant": "a"})
    with pytest.raises(NotRecorded, match="per-call data"):
        asyncio.run(keep.replay(result.call_id))


@pytest.mark.parametrize(
    "data", [{"a": object()}, {"a": float("nan")}, {1: 2}, ["a"], {"a": "x" * DATA_BYTES}, {"a": (1,)}]
)
def test_what_is_no_small_json_object_is_refused(data: Any, keep: Keep) -> None:
    assert keep.call_sync("tenant", {}, data=data).code is Code.OPTION_REFUSED


def test_a_tool_gets_a_copy_of_its_own() -> None:
    @tool(effects="none")
    def change(context: ToolContext) -> int:
        """Change it."""
        context.data["list"].append(1)
        return len(context.data["list"])

    data: dict[str, Any] = {"list": []}
    with Keep() as keep:
        keep.register(change)
        assert [keep.call_sync("change", {}, data=data).value for _ in range(2)] == [1, 1]
    assert data == {"list": []}


def test_the_calls_of_a_models_response_get_it_too(keep: Keep) -> None:
    import asyncio

    use = {"type": "tool_use", "id": "t1", "name": "tenant", "input": {}}
    response = {"role": "assistant", "content": [use], "stop_reason": "tool_use"}
    answers = asyncio.run(keep.answer("anthropic", response, data={"tenant": "acme"}))
    assert "acme" in str(answers)
