"""JSON is read as it is written, and no number makes it slow."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkeep.json_values import reading
from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.json_values.reading import read_canonical, read_strict
from toolkeep.sandbox.frames import FrameRefused, decode

pytestmark = pytest.mark.spec("VAL-9", "SBX-2")

MANY = [1e300] * 1_000
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside),
    max_leaves=8,
)


@pytest.mark.parametrize("beside", [[], MANY], ids=["few", "many exponents"])
@given(VALUES)
def test_json_is_read_as_it_is_written(beside: list[float], value: Any) -> None:
    written = json.dumps([*beside, value])
    assert read_strict(written.encode()) == [*beside, value]
    assert json.dumps(read_strict(memoryview(written.encode()))) == written
    canonical = canonical_bytes([*beside, value])
    assert canonical_bytes(read_canonical(canonical)) == canonical


@pytest.mark.parametrize("beside", ["", "1e300," * 1_000], ids=["few", "many exponents"])
@pytest.mark.parametrize("wrong", ["1e400", "1" * 330 + ".5", "NaN", r'"\ud800"', '"\xff"', "[1,]", "01"])
def test_what_is_not_strict_json_is_refused(beside: str, wrong: str) -> None:
    with pytest.raises(FrameRefused, match="it is not JSON"):
        decode(f"[{beside}{wrong}]".encode("latin-1"))


@pytest.mark.parametrize("number", ["1e300", "1E+300", "-1.5e-0310", "0.5e-310", "12345678e290"])
def test_many_numbers_far_from_one_are_not_read_by_the_parser_that_is_slow_for_them(
    number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(body: object) -> None:
        raise AssertionError(f"{number} would take 10 µs")

    monkeypatch.setattr(reading, "_read", slow)
    body = f"[{','.join([number] * 1_000)}]".encode()
    for read in (read_strict, read_canonical):
        assert math.isclose(read(body)[-1], float(number))
