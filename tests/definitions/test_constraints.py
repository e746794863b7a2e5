"""Constraints and bounds: what is in force when nothing is stated."""

import pytest

from tests.definitions.examples import made
from toolkeep import Isolation
from toolkeep.definitions.constraints import Bounds, Constraints, NetworkBounds

pytestmark = pytest.mark.spec("DEF-6")

MIB = 1024 * 1024


def test_the_defaults_are_those_of_the_specification() -> None:
    constraints = Constraints()
    assert constraints.execution_seconds == 60
    assert constraints.output_bytes == 10 * MIB
    assert constraints.allow_side_effects is True
    assert constraints.isolation is Isolation.STANDARD


@pytest.mark.parametrize(
    ("isolation", "memory"),
    [
        (Isolation.NONE, 512 * MIB),
        (Isolation.STANDARD, 512 * MIB),
        (Isolation.STRICT, 512 * MIB),
        (Isolation.RESTRICTED, 64 * MIB),
    ],
)
def test_memory_is_512_mb_and_64_when_restricted(isolation: Isolation, memory: int) -> None:
    assert Bounds().memory_bytes(isolation) == memory


def test_what_is_stated_is_in_force() -> None:
    definition = made(
        constraints={
            "max_execution_time": 5,
            "max_output_size": 2048,
            "allow_side_effects": False,
            "required_isolation": "restricted",
        },
        resource_bounds={
            "max_memory": 1000,
            "max_cpu": 0.5,
            "max_network": {"max_requests": 3, "max_bytes": 4096},
        },
    )
    assert definition.constraints == Constraints(
        max_execution_time_s=5,
        max_output_bytes=2048,
        allow_side_effects=False,
        required_isolation=Isolation.RESTRICTED,
    )
    assert (definition.constraints.execution_seconds, definition.constraints.output_bytes) == (5, 2048)
    assert definition.constraints.isolation is Isolation.RESTRICTED
    assert definition.resource_bounds == Bounds(
        max_memory_bytes=1000,
        max_cpu_cores=0.5,
        max_network=NetworkBounds(max_requests=3, max_bytes=4096),
    )
    assert definition.resource_bounds.memory_bytes(Isolation.RESTRICTED) == 1000


def test_null_means_the_default() -> None:
    definition = made(
        constraints={
            "max_execution_time": None,
            "max_output_size": None,
            "allow_side_effects": None,
            "required_isolation": None,
        },
        resource_bounds={"max_memory": None, "max_cpu": None, "max_network": None},
    )
    assert definition == made()


def test_null_for_the_whole_means_the_default() -> None:
    assert made(constraints=None, resource_bounds=None) == made()
