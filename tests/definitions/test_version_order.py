"""Semantic versions in order (semver.org, section 11), and the version in `name@version`."""

import itertools

import pytest

from toolkeep.definitions.version_order import fold, precedence, split_version

ASCENDING = [
    "0.0.0",
    "0.0.1-alpha",
    "0.0.1",
    "0.9.0",
    "0.10.0",
    "1.0.0-0",
    "1.0.0-2",
    "1.0.0-11",
    "1.0.0--",
    "1.0.0-RC1",
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.2",
    "1.0.0-alpha.10",
    "1.0.0-alpha.beta",
    "1.0.0-alpha-a",
    "1.0.0-beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
    "1.0.0",
    "1.0.9",
    "1.0.10",
    "1.2.0",
    "1.10.0",
    "2.0.0-rc.1",
    "2.0.0",
    "10.0.0",
]


@pytest.mark.spec("REG-2")
@pytest.mark.parametrize(("older", "newer"), list(itertools.pairwise(ASCENDING)))
def test_versions_stand_in_the_order_of_semver(older: str, newer: str) -> None:
    assert precedence(older) < precedence(newer)


@pytest.mark.spec("REG-2")
def test_the_order_does_not_depend_on_where_one_starts() -> None:
    assert sorted(set(ASCENDING), key=precedence) == ASCENDING


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("1.0.0-rc.1+zzz", "1.0.0"),
        ("1.0.0+zzz", "1.0.1"),
        ("1.0.0-alpha+2", "1.0.0-beta+1"),
        ("1.0.0+build-with-hyphen", "1.0.1-rc.1"),
        ("1.0.0-rc.1+build-9", "1.0.0+build-1"),
    ],
)
def test_build_metadata_never_outweighs_the_version_itself(older: str, newer: str) -> None:
    assert precedence(older) < precedence(newer)


def test_versions_that_differ_in_build_metadata_alone_are_told_apart() -> None:
    assert precedence("1.0.0+a") != precedence("1.0.0+b")
    assert precedence("1.0.0+a")[:-1] == precedence("1.0.0+b")[:-1]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("read_file", ("read_file", "")),
        ("read_file@1.2.0", ("read_file", "1.2.0")),
        ("read_file@1.2.0-rc.1+build.5", ("read_file", "1.2.0-rc.1+build.5")),
        ("read_file@", ("read_file", "")),
        ("@1.2.0", ("", "1.2.0")),
        ("a@b@c", ("a", "b@c")),
        ("", ("", "")),
    ],
)
def test_a_name_is_split_from_the_version_that_is_asked_for(name: str, parts: tuple[str, str]) -> None:
    assert split_version(name) == parts


@pytest.mark.parametrize(
    ("name", "folded"),
    [
        ("read_file", "read_file"),
        ("READ_File", "read_file"),
        ("\N{KELVIN SIGN}ill", "\N{KELVIN SIGN}ill"),
        ("li\N{LATIN SMALL LETTER LONG S}t", "li\N{LATIN SMALL LETTER LONG S}t"),
        ("STRA\u00dfE", "STRA\u00dfE"),
        ("", ""),
    ],
)
def test_only_ascii_letters_are_folded(name: str, folded: str) -> None:
    assert fold(name) == folded
