"""Tools that a server answers: what they reach, what comes back, and what is refused."""

from typing import Any

import pytest

from tests.network.inside import http_tools
from tests.network.world import run_inside, scenarios
from toolkeep import DefinitionError, HttpSource
from toolkeep.network.http_endpoint import Endpoint


@pytest.fixture(scope="module")
def results() -> dict[str, str]:
    return run_inside(http_tools)


@pytest.mark.spec("SBX-4")
@pytest.mark.parametrize("name", scenarios(http_tools))
def test_in_an_internet_of_our_own(name: str, results: dict[str, str]) -> None:
    assert results[name] == "", results[name]


@pytest.mark.spec("SBX-4")
@pytest.mark.parametrize(
    "target",
    [
        {}, {"url": 5}, [], None, "", "shop.example", "ftp://shop.example/", "https://{host}/", "https://shop.{tld}/",
        "https://{user}@shop.example/", "https://u:p@shop.example/", "{scheme}://shop.example/", "wss://shop.example/",
        "https://shop.example:{port}/", "https://shop.example/{a", "https://shop.example/a}", "https://shop.example/{}",
        "https://shop.example/{a/b}", "https://shop.example/../{a}", "https://shop.example/%2e%2e/a",
        "https://shop.example/a#b", "https://shop.example/ü", "https://shop.example?a={a}", "https://shop.example/a b",
        {"url": "https://shop.example/", "methode": "GET"}, {"url": "https://shop.example/", "method": "TRACE"},
        {"url": "https://shop.example/", "method": "get"}, {"url": "https://shop.example/", "headers": ["a"]},
        {"url": "https://shop.example/", "headers": {"Host": "other.example"}},
        {"url": "https://shop.example/", "headers": {"Content-Length": "1"}},
        {"url": "https://shop.example/", "headers": {"Proxy-Authorization": "a"}},
        {"url": "https://shop.example/", "headers": {"Accept-Encoding": "gzip"}},
        {"url": "https://shop.example/", "headers": {"A": b"b\\r\\nC: d".decode("unicode_escape")}},
        {"url": "https://shop.example/", "headers": {"A b": "c"}}, {"url": "https://shop.example/", "headers": {"A": 1}},
        {"url": "https://shop.example/", "headers": {"A": "{title}"}},
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_refused_when_it_is_read(target: Any) -> None:
    with pytest.raises(ValueError, match="has "):
        Endpoint.read(target)


def test_a_source_names_the_tool_whose_url_cannot_be() -> None:
    source = HttpSource(url="https://shop.example")
    with pytest.raises(DefinitionError, match="tool 'ask' cannot be used"):
        source.tool({"name": "ask", "description": "Asks."}, "/{a")
