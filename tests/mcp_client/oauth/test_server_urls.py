"""URLs that servers name: https alone, and whose they are."""

import pytest

from toolkeep.mcp_client.oauth.server_urls import base_of, check_https, covers_url, path_of
from toolkeep.mcp_client.transport import UpstreamFailed


@pytest.mark.parametrize(
    "url",
    [
        "http://a.example/", "javascript:alert(1)", "file:///etc/passwd", "https://u:p@a.example/", "https://a.example#x",
        "https://a.example\\@b.example/", "https://a.example/\r\nX: y", "//a.example", "https:///x", "ftp://a.example", None,
        7, "https://é.example/", "https://a.example/" + "x" * 3_000, "wss://a.example/", " https://a.example/",
        "https://a.example/$(id)", "https://a.example/`id`", "https://a.example/;id", "https://a.example/'x", "https://a.example/|id",
    ],
)  # fmt: skip
def test_what_is_no_plain_https_url_is_refused(url: object) -> None:
    with pytest.raises(UpstreamFailed):
        check_https(url, "it")


@pytest.mark.parametrize(
    ("resource", "url", "is_held"),
    [
        ("https://a.example/mcp", "https://a.example/mcp", True),
        ("https://a.example/mcp/", "https://a.example/mcp", True),
        ("https://a.example", "https://a.example/mcp", True),
        ("https://A.example:443/", "https://a.example/mcp", True),
        ("https://a.example/mc", "https://a.example/mcp", False),
        ("https://a.example/mcp/x", "https://a.example/mcp", False),
        ("https://a.example:444/mcp", "https://a.example/mcp", False),
        ("https://b.a.example/mcp", "https://a.example/mcp", False),
        ("https://a.example/mcp?x=1", "https://a.example/mcp", False),
    ],
)
def test_a_resource_is_the_server_or_above_it(resource: str, url: str, is_held: bool) -> None:
    assert covers_url(resource, url) is is_held


def test_urls_come_apart() -> None:
    assert base_of("https://a.example:8443/x/y?z") == "https://a.example:8443"
    assert path_of("https://a.example/x/y/?z") == "/x/y"
    assert path_of("https://a.example") == ""
