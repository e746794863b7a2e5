"""The page about the server, and those of its codes: every exchange happens as it is shown."""

import re
from pathlib import Path

import pytest

from tests.docs.exchanges import PAGES, exchanges
from tests.docs.markdown import ROOT
from toolkeep.server.api.routes import ROUTES
from toolkeep.server.http.bearer_auth import SCOPES
from toolkeep.stores.api_tokens import ROLES

PAGE = (ROOT / "docs" / "server.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_exchanges_of_a_page_happen_as_it_shows_them(path: Path) -> None:
    found = exchanges(path.read_text(encoding="utf-8"))
    assert found
    for one in found:
        assert one.is_true, f"{one.request}\n{one.actual}"


def test_every_route_is_on_the_page_with_its_scopes() -> None:
    rows = re.findall(r"^\| `([A-Z]+) ([^`]+)` \| ([^|]*) \|", PAGE, re.MULTILINE)
    shown = {(method, path): set(re.findall(r"`([^`]+)`", scopes)) for method, path, scopes in rows}
    wanted = {(one.method, one.path): {scope.value for scope in one.scopes} for one in ROUTES}
    wanted[("GET", "/v1/token")] = wanted[("GET", "/v1/status")] = set()  # any
    assert shown == wanted


def test_every_scope_and_role_is_on_the_page() -> None:
    rows = re.findall(r"^\| `([a-z:]+)` \|", PAGE, re.MULTILINE)
    assert rows == [*(scope.value for scope in SCOPES), *ROLES]
