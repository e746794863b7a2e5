"""The list of tools with the calls of each."""

import re

import pytest

from tests.server.web.test_app import Visitor, visit
from toolkeep import Keep

pytestmark = pytest.mark.spec("WEB-2")


@pytest.fixture
def busy(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> Keep:
    """A keep in which two tools were called, shown three tools at a time."""
    monkeypatch.setattr("toolkeep.server.web.tools_page._SHOWN", 3)
    for name in ("count_up", "add", "count_up"):
        keep.call_sync(name, {"no": "such"}, agent="operator")
    return keep


async def names(visitor: Visitor, path: str) -> list[str]:
    """The tools in order, page after page."""
    page = (await visitor.get(path, **{"hx-request": "true"})).body.decode()
    found = re.findall(r'class="tool-name" href="/ui/tools/(\w+)"', page)
    more = re.findall(r'class="tr more" role="row" hx-get="([^"]*)"', page)
    return found + (await names(visitor, more[0].replace("&amp;", "&")) if more else [])


@pytest.mark.parametrize("filters", ["", "&search=u", "&category=general"])
def test_the_most_called_tools_come_first_where_that_is_chosen(busy: Keep, filters: str) -> None:
    async def act(visitor: Visitor) -> list[list[str]]:
        return [await names(visitor, f"/ui/tools?sort={sort}{filters}") for sort in ("", "calls")]

    usual, most = visit(busy, act)
    called = [name for name in ("count_up", "add") if name in usual]
    assert most == called + [name for name in usual if name not in called]
    assert len(usual) > 4


def test_who_may_not_read_the_log_is_told_no_numbers(busy: Keep) -> None:
    async def act(visitor: Visitor) -> list[str]:
        pages = [(await visitor.get("/ui/tools")).body.decode()]
        token = visitor.operator.tokens.make("reader", ["tools:read"], agent="ada").text
        await visitor.sign_in(token=token)
        return [*pages, (await visitor.get("/ui/tools?sort=calls")).body.decode()]

    told, untold = visit(busy, act)
    assert ("/ui/audit?" in told, "Calls, 7 days" in told) == (True, True)
    assert ("/ui/audit?" in untold, "Calls, 7 days" in untold) == (False, False)
