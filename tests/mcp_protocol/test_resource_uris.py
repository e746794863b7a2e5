"""URIs of resources: templates match their expansions and nothing else, and names per upstream are reversible."""

import pytest
import re2

from toolkeep.mcp_protocol.resource_uris import (
    has_dot_segments,
    namespaced,
    split_namespaced,
    template_pattern,
    wrong_with_template,
    wrong_with_uri,
)

pytestmark = pytest.mark.spec("MCP-4")


@pytest.mark.parametrize(
    ("template", "expansions", "others"),
    [
        (
            "d://{x}",
            ["d://a", "d://", "d://a%2Fb", "d://a,b"],
            ["d://a/b", "d://a?b", "e://a", "d://a\n", "d://%zz"],
        ),
        ("d://{+x}/y", ["d://a/b/y", "d:///y"], ["d://a/b", 'd://"/y', "d://a b/y"]),
        ("d://a{#x}", ["d://a", "d://a#b/c"], ["d://ab", "d://a/b"]),
        ("d://a{.x}", ["d://a.b", "d://a"], ["d://ab", "d://a/b"]),
        ("d://a{/x*}", ["d://a", "d://a/b/c"], ["d://ab", "d://a?b"]),
        ("d://a{;x,y}", ["d://a;x=1;y=2", "d://a"], ["d://a/x", "d://ab"]),
        ("d://a{?x,y}{&z}", ["d://a", "d://a?x=1&y=2", "d://a?x=1&z=3"], ["d://a/x=1", "d://a?x=/"]),
        ("d://a.b(c)+/{x:3}", ["d://a.b(c)+/z"], ["d://aXb(c)+/z", "d://a.b(c)/z"]),
    ],
)
def test_a_template_matches_its_expansions_only(
    template: str, expansions: list[str], others: list[str]
) -> None:
    assert not wrong_with_template(template)
    pattern = template_pattern(template)
    assert [uri for uri in expansions if not re2.fullmatch(pattern, uri)] == []
    assert [uri for uri in others if re2.fullmatch(pattern, uri)] == []


@pytest.mark.parametrize(
    "template", ["{x}", "{x}://a", "d://{", "d://}", "d://{}", "d://{!x}", "d://{x y}", "d://a b", 7, ""]
)
def test_a_template_that_stands_for_any_uri_or_is_malformed_is_refused(template: object) -> None:
    assert wrong_with_template(template)


@pytest.mark.parametrize(
    "uri", ["a", "d://a b", "d://a\x00", "d://\u202ea", "d://é", 'd://"', "d:", "d://%4", None]
)
def test_a_uri_with_characters_that_are_not_allowed_is_refused(uri: object) -> None:
    assert wrong_with_uri(uri)


def test_dot_segments_are_seen_however_they_are_encoded() -> None:
    hidden = (
        "d://a/../b",
        "d://a/%2e%2E/b",
        "d://a/.%2e",
        "d://a%2F..%2Fb",
        "d://a/%252e%252e/b",
        "d://a/..%5Cb",
        "d://./a",
    )
    assert [uri for uri in hidden if not has_dot_segments(uri)] == []
    assert not any(map(has_dot_segments, ("d://a.b/..c", "d://a/.git", "d://a?q=..", "d://...")))


@pytest.mark.parametrize("uri", ["file:///etc/passwd", "toolkeep:other/d://x", "d://a?b#c", "d:a/b:c"])
def test_names_per_upstream_are_reversible(uri: str) -> None:
    assert not wrong_with_uri(namespaced("docs", uri))
    assert split_namespaced(namespaced("docs", uri)) == ("docs", uri)
    assert split_namespaced("file:///etc/passwd") is None
