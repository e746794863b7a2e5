"""Random schemas and calls against python-jsonschema; `scripts/soak` runs the same for longer."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import fuzz
from tests.conftest import transfer
from toolkeep import Keep, open_keep

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text(max_size=8), inside, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from(["account", "amount", "urgent", "tags", "mode", "acount", "x"])


@pytest.mark.spec("VAL-1", "VAL-2")
@pytest.mark.parametrize("seed", range(4))
def test_random_calls_agree_with_an_independent_validator(seed: int) -> None:
    found = fuzz.run(seed, schemas=150)
    assert found.failures == []
    assert found.schemas > 100
    assert found.accepted > 100


@pytest.fixture(scope="module")
def shared_keep() -> Keep:
    keep = open_keep()
    keep.register(transfer)
    return keep


@pytest.mark.spec("VAL-10")
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(arguments=st.dictionaries(NAMES, JSON, max_size=5))
def test_any_json_gets_a_verdict_that_data_and_text_share(
    shared_keep: Keep, arguments: dict[str, Any]
) -> None:
    by_text = shared_keep.try_validate_arguments("transfer", json.dumps(arguments))
    by_data = shared_keep.try_validate_arguments("transfer", arguments)
    assert by_text.success is by_data.success
    assert len(json.dumps(by_text.to_dict())) < 40_000


@pytest.mark.spec("VAL-10")
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=st.binary(max_size=200) | st.text(max_size=200))
def test_any_bytes_get_a_verdict(shared_keep: Keep, raw: bytes | str) -> None:
    assert shared_keep.try_validate_arguments("transfer", raw).success in (True, False)
