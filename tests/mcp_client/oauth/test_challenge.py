"""What a server asks for, out of a header that it wrote."""

import pytest

from toolkeep.mcp_client.oauth.challenge import Challenge, clean_scope, joined_scopes, read_challenge


@pytest.mark.parametrize(
    ("header", "asked"),
    [
        ("", Challenge()),
        ("Basic realm=x", Challenge()),
        ("Bearer", Challenge()),
        (
            'bearer scope="a b", resource_metadata="https://x/y"',
            Challenge(scope="a b", metadata_url="https://x/y"),
        ),
        ("Bearer error=insufficient_scope,scope=a", Challenge(error="insufficient_scope", scope="a")),
        (r'Bearer scope="a\"b c"', Challenge(scope="c")),
        ('Bearer scope="a", scope="b"', Challenge(scope="a")),
        ('Bearer realm="scope=evil", scope="a"', Challenge(scope="a")),
    ],
)
def test_a_header_is_read(header: str, asked: Challenge) -> None:
    assert read_challenge(header) == asked


def test_a_header_without_end_is_read_up_to_a_bound() -> None:
    assert read_challenge('Bearer scope="' + "a " * 100_000) == Challenge()


def test_scopes_are_joined_once_each_and_without_what_is_none() -> None:
    assert clean_scope('a  b "c a é ' + "x" * 300) == "a b"
    assert clean_scope(["a"]) == ""
    assert joined_scopes("a b", "", "b c") == "a b c"
