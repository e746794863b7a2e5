"""Dependencies of function tools: made for one call, cleaned up after it, never in the schema (DEF-14)."""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest

from toolkeep import Code, Depends, Keep, ToolContext, ToolFailed, tool
from toolkeep.errors import DefinitionInvalid
from toolkeep.testing import check_tool

pytestmark = pytest.mark.spec("DEF-14")

happened: list[str] = []


@pytest.fixture(autouse=True)
def nothing_happened() -> None:
    happened.clear()


class Shop:
    def __init__(self, tenant: str = "none") -> None:
        self.tenant = tenant


def open_shop(context: ToolContext) -> Iterator[Shop]:
    happened.append("open")
    try:
        yield Shop(context.agent)
    finally:
        happened.append("close")


async def open_later(shop: Annotated[Shop, Depends(open_shop)]) -> AsyncIterator[str]:
    happened.append("open later")
    await asyncio.sleep(0)
    yield f"{shop.tenant} later"
    happened.append("close later")


OpenShop = Annotated[Shop, Depends(open_shop)]


@tool(effects="none")
def count(book: str, shop: OpenShop) -> str:
    """Count a book."""
    happened.append("count")
    return f"{book} of {shop.tenant}"


@tool(effects="none")
async def count_later(book: str, later: Annotated[str, Depends(open_later)], shop: OpenShop) -> str:
    """Count a book."""
    happened.append("count")
    return f"{book} of {later} and {shop.tenant}"


@tool(effects="none")
def each(shop: OpenShop) -> Iterator[str]:
    """Each book."""
    yield shop.tenant
    happened.append("between")
    yield "end"


@tool(effects="none")
def each_later(later: Annotated[str, Depends(open_later)]) -> Iterator[str]:
    """Each book."""
    yield later
    happened.append("between")
    yield "end"


def called(*tools: Any, **arguments: Any) -> Any:
    with Keep() as keep:
        keep.register(*tools)
        return keep.call_sync(tools[0].definition.name, arguments)


def test_a_dependency_is_made_for_the_call_and_cleaned_up_after_it() -> None:
    assert called(count, book="Dune").value == "Dune of local"
    assert happened == ["open", "count", "close"]


def test_async_dependencies_have_dependencies_of_their_own_each_made_once() -> None:
    assert called(count_later, book="Dune").value == "Dune of local later and local"
    assert happened == ["open", "open later", "count", "close later", "close"]


@pytest.mark.parametrize(
    ("made", "value", "order"),
    [
        (each, "localend", ["open", "between", "close"]),
        (each_later, "local laterend", ["open", "open later", "between", "close later", "close"]),
    ],
)
def test_a_generator_has_its_dependencies_until_its_end(made: Any, value: Any, order: Any) -> None:
    assert (called(made).value, happened) == (value, order)


def test_no_dependency_is_in_the_schema_and_no_model_can_send_one() -> None:
    assert list(count.definition.properties) == ["book"]
    refused = called(count, book="Dune", shop={"tenant": "mine"})
    assert [(one.path, one.code) for one in refused.error.errors] == [("/shop", Code.CONSTRAINT)]
    assert happened == []


def test_a_default_may_mark_it_too() -> None:
    @tool(effects="none")
    def with_default(book: str, shop: Shop = Depends(Shop)) -> str:  # type: ignore[assignment]  # noqa: B008 -- as in FastAPI
        """Count."""
        return shop.tenant

    assert list(with_default.definition.properties) == ["book"]
    assert called(with_default, book="x").value == "none"


def test_a_blocking_tool_and_its_dependencies_share_one_thread() -> None:
    def connect() -> Iterator[sqlite3.Connection]:  # which no other thread may use
        with contextlib.closing(sqlite3.connect(":memory:")) as opened:
            yield opened

    @tool(effects="none")
    def ask(db: Annotated[sqlite3.Connection, Depends(connect)]) -> int:
        """Ask."""
        return int(db.execute("select 7").fetchone()[0])

    assert called(ask).value == 7


def test_what_blocks_is_made_off_the_event_loop() -> None:
    def where() -> Iterator[int]:
        yield threading.get_ident()
        happened.append(str(threading.get_ident()))

    @tool(effects="none")
    async def compare(thread: Annotated[int, Depends(where)]) -> bool:
        """Compare."""
        here = threading.get_ident()
        happened.append(str(here))
        return thread == here

    assert called(compare).value is False
    assert happened[0] != happened[1]


@pytest.mark.parametrize("decorate", [contextlib.contextmanager, None])
def test_context_managers_of_contextlib_are_entered(decorate: Any) -> None:
    made = contextlib.contextmanager(open_shop) if decorate else contextlib.asynccontextmanager(open_later)

    @tool(effects="none")
    def name_it(it: Annotated[Any, Depends(made)]) -> str:
        """Name."""
        return str(it if isinstance(it, str) else it.tenant)

    with Keep() as keep:
        keep.register(name_it)
        assert keep.call_sync("name_it", {}).value in ("local", "local later")
    assert happened[-1] == "close"


def test_clean_up_sees_the_failure_and_the_model_reads_what_a_maker_says() -> None:
    def closed(context: ToolContext) -> Shop:
        raise ToolFailed("the shop is closed")

    @tool(effects="none")
    def fail(shop: OpenShop, never: Annotated[Shop, Depends(closed)]) -> str:
        """Fail."""
        return "never"

    result = called(fail)
    assert (result.code, happened) == (Code.TOOL_FAILED, ["open", "close"])
    assert "the shop is closed" in result.text


@pytest.mark.parametrize("is_async", [False, True])
def test_a_dependency_that_swallows_the_failure_makes_no_result(is_async: bool) -> None:
    def swallow() -> Iterator[int]:
        with contextlib.suppress(ValueError):
            yield 1

    def fail(number: Annotated[int, Depends(swallow)]) -> None:
        """Fail."""
        raise ValueError(number)

    async def fail_later(number: Annotated[int, Depends(swallow)]) -> None:
        """Fail."""
        raise ValueError(number)

    made = tool(effects="none")(fail_later if is_async else fail)
    assert called(made).code is Code.TOOL_FAILED


def test_a_call_that_is_cancelled_cleans_up() -> None:
    began = asyncio.Event()

    @tool(effects="none")
    async def wait(shop: OpenShop) -> None:
        """Wait."""
        began.set()
        await asyncio.sleep(60)

    async def main() -> None:
        async with Keep() as keep:
            keep.register(wait)
            task = asyncio.ensure_future(keep.call("wait", {}))
            await began.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert happened == ["open", "close"]


def needs_itself(it: "Annotated[int, Depends(needs_itself)]") -> int:
    return it


def needs_a_name(name: str) -> str:
    return name


@pytest.mark.parametrize("make", [needs_itself, needs_a_name])
def test_a_maker_that_cannot_be_called_is_told_where_the_tool_is_defined(make: Any) -> None:
    def use(it: Annotated[Any, Depends(make)]) -> str:
        """Use."""
        return str(it)

    with pytest.raises(DefinitionInvalid, match=f"dependency '{make.__name__}'"):
        tool(effects="none")(use)


def test_only_a_function_makes_a_dependency() -> None:
    with pytest.raises(TypeError, match="the function that makes the value"):
        Depends(Shop())  # type: ignore[arg-type]


def test_a_test_overrides_a_dependency_and_what_depends_on_it() -> None:
    other = count_later.override({open_shop: lambda: Shop("fake")})
    assert called(other, book="Dune").value == "Dune of fake later and fake"
    assert called(count_later, book="Dune").value == "Dune of local later and local"
    check_tool(count.override({open_shop: Shop}), {"book": "Dune"})


def test_overridden_dependencies_are_refused_where_a_worker_would_run_others() -> None:
    made = tool(effects="none", constraints={"required_isolation": "strict"})(count.function)
    with Keep() as keep, pytest.raises(DefinitionInvalid, match="overridden"):
        keep.register(made.override({open_shop: Shop}))
