"""A program that connects by itself, as if there were a network, and the names that it is told."""

import shutil

import pytest

from tests.network.inside import direct
from tests.network.world import run_inside, scenarios
from toolkeep.network.allowlist import HostAllowlist
from toolkeep.network.errors import NetworkRefused
from toolkeep.network.hosts import HostScope
from toolkeep.network.name_server import Lookup, SyntheticAddresses, is_granted

pytestmark = pytest.mark.spec("SBX-4")


@pytest.fixture(scope="module")
def results() -> dict[str, str]:
    return run_inside(direct)


@pytest.mark.parametrize("name", scenarios(direct))
def test_in_an_internet_of_our_own(name: str, results: dict[str, str]) -> None:
    if "node" in name and shutil.which("node") is None:
        pytest.skip("there is no node")
    assert results[name] == "", results[name]


HEADER = b"\x12\x34\1\0\0\1\0\0\0\0\0\0"


def query(name: bytes, kind: bytes = b"\0\1\0\1", header: bytes = HEADER) -> bytes:
    return header + name + kind


def test_a_query_is_answered_with_its_own_question_and_one_address() -> None:
    lookup = Lookup(query(b"\4Shop\7example\0"))
    assert lookup.name == "shop.example"
    question = b"\4Shop\7example\0\0\1\0\1"
    record = b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4\xc6\x12\0\1"
    message = b"\x12\x34\x81\x80\0\1\0\1\0\0\0\0" + question + record
    assert lookup.response("198.18.0.1") == len(message).to_bytes(2, "big") + message
    # There are no IPv6 addresses: the name exists, and has none.
    assert (
        Lookup(query(b"\4shop\7example\0", b"\0\x1c\0\1")).response("198.18.0.1")[4:10] == b"\x81\x80\0\1\0\0"
    )
    assert lookup.refusal()[5] & 0xF == 3


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        HEADER,
        query(b"\4shop"),
        query(b"\4shop\0", b"\0\1"),
        query(b"\4shop\0", header=b"\x12\x34\x81\0" + HEADER[4:]),
        query(b"\4shop\0", header=HEADER[:4] + b"\0\2" + HEADER[6:]),
    ],
)
def test_what_is_no_query_ends_the_connection(raw: bytes) -> None:
    with pytest.raises(EOFError):
        Lookup(raw)


@pytest.mark.parametrize(
    "name",
    [
        b"\0",
        b"\xc0\x0c\0",
        b"\x3fshop\0",
        b"\3a b\0",
        b"\1a\1.\0",
        b"\1\xff\0",
        b"\3127\0010\0010\0011\0",
    ],
)
def test_a_name_that_no_host_can_have_is_refused(name: bytes) -> None:
    with pytest.raises(NetworkRefused):
        _ = Lookup(query(name)).name


def test_names_have_addresses_as_far_as_they_are_granted_and_not_too_many() -> None:
    allowlist = HostAllowlist(
        reads=(HostScope.read("*.shop.example:*"),), writes=(HostScope.read("db.corp:3306=10.0.0.0/8"),)
    )
    granted = [is_granted(name, allowlist) for name in ("a.shop.example", "db.corp", "shop.example", "corp")]
    assert granted == [True, True, False, False]
    assert (allowlist.ports, HostAllowlist().ports) == ((80, 443, 3306), ())
    addresses = SyntheticAddresses()
    given = [addresses.address_of(f"{number}.shop.example") for number in range(4096)]
    assert (len(set(given)), addresses.address_of("7.shop.example")) == (4096, given[7])
    assert addresses.host_of(given[7], 80).name == "7.shop.example"
    assert addresses.host_of("10.0.0.5", 80).is_address
    with pytest.raises(NetworkRefused):
        addresses.address_of("more.shop.example")
