"""Canonical JSON (RFC 8785) and its hash."""

import hashlib
import json
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from tests.definitions.examples import FLOATS, JSON, TEXT, json_of
from toolkeep.json_values.canonical import canonical_bytes, canonical_hash
from toolkeep.json_values.frozen import freeze

SAFE = 2**53 - 1


@given(json_of(st.integers(-SAFE, SAFE) | FLOATS))
def test_canonical_bytes_are_those_of_the_reference_library(value: Any) -> None:
    assert canonical_bytes(value) == rfc8785.dumps(value)


@given(
    st.floats(allow_nan=False, allow_infinity=False)
    | st.builds(
        lambda digits, exponent: float(f"{digits}e{exponent}"),
        st.integers(-(10**17), 10**17),
        st.integers(-30, 10),
    )
)
def test_every_fraction_is_written_as_the_reference_library_writes_it(number: float) -> None:
    """Around 1e-6 and 1e21, where exponents begin, and beyond 2^53, where not every digit counts."""
    assert canonical_bytes(number) == rfc8785.dumps(number)
    assert canonical_bytes([number, {"a": number}]) == rfc8785.dumps([number, {"a": number}])


def test_a_million_fractions_are_not_written_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool that answered so held up everything for seconds."""
    monkeypatch.setattr("toolkeep.json_values.canonical._write", None)
    small = [1.5e-9, 1e-7, 2.5e22, 1.0, 3.0, 1.5e-6, 1e16, 0.25]
    assert canonical_bytes(small * 3) == rfc8785.dumps(small * 3)


@given(json_of(st.integers(-(2**200), 2**200)))
def test_canonical_bytes_are_json_of_the_same_value(value: Any) -> None:
    assert json.loads(canonical_bytes(value)) == value


@given(st.dictionaries(TEXT, JSON, max_size=6), st.randoms(use_true_random=False))
def test_order_of_keys_does_not_matter(value: dict[str, Any], random: Any) -> None:
    members = list(value.items())
    random.shuffle(members)
    assert canonical_bytes(dict(members)) == canonical_bytes(value)


@given(JSON)
def test_frozen_data_has_the_bytes_of_plain_data(value: Any) -> None:
    assert canonical_bytes(freeze(value)) == canonical_bytes(value)


def test_keys_are_sorted_by_utf_16_as_in_section_3_2_3() -> None:
    value = {
        "\u20ac": "Euro Sign",
        "\r": "Carriage Return",
        "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One",
        "\U0001f600": "Emoji: Grinning Face",
        "\u0080": "Control",
        "\u00f6": "Latin Small Letter O With Diaeresis",
    }
    assert list(json.loads(canonical_bytes(value)).values()) == [
        "Carriage Return",
        "One",
        "Control",
        "Latin Small Letter O With Diaeresis",
        "Euro Sign",
        "Emoji: Grinning Face",
        "Hebrew Letter Dalet With Dagesh",
    ]


def test_the_example_of_section_3_2_2_is_written_as_there() -> None:
    value = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"/",
        "literals": [None, True, False],
    }
    assert canonical_bytes(value).decode() == (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (1.0, "1"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (9007199254740992.0, "9007199254740992"),
        (1e21, "1e+21"),
        (1e20, "100000000000000000000"),
        (1e-7, "1e-7"),
        (0.1 + 0.2, "0.30000000000000004"),
        (0.00012, "0.00012"),
        (0.000012, "0.000012"),
        (999999999999999.9, "999999999999999.9"),
        (1000000000000000.5, "1000000000000000.5"),
    ],
)
def test_floats_are_written_as_ecmascript_writes_them(value: float, text: str) -> None:
    assert canonical_bytes([value]).decode() == f"[{text}]"


@pytest.mark.parametrize("value", [SAFE, SAFE + 1, -SAFE - 1, 2**63, 2**64, 10**30, -(10**100)])
def test_integers_keep_their_exact_digits(value: int) -> None:
    assert canonical_bytes({"n": value}).decode() == f'{{"n":{value}}}'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_outside_json_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="not representable"):
        canonical_bytes({"n": value})


@pytest.mark.parametrize("value", [(1,), {1: 2}, {1: 2.5}, {1, 2}, b"x", {"é": object()}])
def test_what_is_not_json_is_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        canonical_bytes(value)


def test_the_hash_is_the_sha_256_of_the_canonical_bytes() -> None:
    expected = hashlib.sha256(b'{"a":[1,"\xc3\xa9"],"b":null}').hexdigest()
    assert canonical_hash({"b": None, "a": [1.0, "é"]}) == expected
