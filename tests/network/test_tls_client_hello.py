"""The server that a ClientHello names; hostile ones are refused and never break anything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.network.hellos import client_hello, fragmented
from toolkeep.network.errors import NetworkRefused
from toolkeep.network.tls_client_hello import server_name

HELLO = client_hello("shop.example")


def test_the_name_is_read_also_from_pieces_and_with_bytes_behind_it() -> None:
    assert server_name(HELLO) == "shop.example"
    assert server_name(fragmented(HELLO, len(HELLO) // 8)) == "shop.example"
    assert server_name(HELLO + b"\x17\x03\x03\x00\x01x") == "shop.example"


def test_every_beginning_of_a_hello_waits_for_more() -> None:
    assert {server_name(HELLO[:length]) for length in range(len(HELLO))} == {None}


@pytest.mark.spec("SBX-4")
@given(st.binary(max_size=200))
def test_any_bytes_are_a_name_or_more_to_come_or_refused(data: bytes) -> None:
    try:
        server_name(data)
    except NetworkRefused as refused:
        assert refused.reason


@pytest.mark.spec("SBX-4")
@given(st.integers(5, len(HELLO) - 1), st.integers(0, 255))
def test_a_hello_with_any_byte_changed_is_a_name_or_more_to_come_or_refused(at: int, value: int) -> None:
    try:
        server_name(HELLO[:at] + bytes((value,)) + HELLO[at + 1 :])
    except NetworkRefused as refused:
        assert refused.reason
