"""The official JSON Schema suite, in plain mode and through the whole pipeline of a tool."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.validation.plain import load_remotes, plain_validator
from toolkeep import ToolDefinition
from toolkeep.errors import DefinitionError
from toolkeep.limits import DEFAULT_LIMITS
from toolkeep.registry.admit import admit
from toolkeep.validation.compile import compile_output
from toolkeep.validation.parse import parse_json
from toolkeep.validation.refusal_history import RefusalHistory
from toolkeep.validation.validate import validate

pytestmark = pytest.mark.spec("VAL-1")


class Group(NamedTuple):
    file: str
    schema: Any
    tests: list[dict[str, Any]]

    @property
    def asserts_formats(self) -> bool:
        return self.file.startswith("optional/format")


def groups(suite: Path) -> Iterator[Group]:
    folder = suite / "tests" / "draft2020-12"
    for path in sorted(folder.rglob("*.json")):
        for group in json.loads(path.read_bytes()):
            yield Group(path.relative_to(folder).as_posix(), group["schema"], group["tests"])


@pytest.fixture(scope="module")
def suite(shared_data: Path) -> Path:
    return shared_data / "json-schema-test-suite"


def test_every_test_of_the_suite_passes_in_plain_mode(suite: Path) -> None:
    remotes = load_remotes(suite)
    total, failed = 0, []
    for group in groups(suite):
        validator = plain_validator(group.schema, remotes, asserts_formats=group.asserts_formats)
        for test in group.tests:
            total += 1
            value = parse_json(json.dumps(test["data"]).encode())
            if validator.is_valid(value) is not test["valid"]:
                failed.append((group.file, test["description"]))
    assert failed == []
    assert total == 2225


def test_a_schema_taken_as_written_gives_the_suites_verdicts(suite: Path) -> None:
    """References resolved, patterns guarded, cost bounded: none of it changes what a schema means."""
    admitted, wrong = 0, []
    for group in groups(suite):
        if not isinstance(group.schema, dict) or group.file == "format.json" or "vocabulary" in group.file:
            continue
        compiled = compile_output(group.schema, by_hand=False, limits=DEFAULT_LIMITS).compiled
        if compiled is None:
            continue
        for test in group.tests:
            admitted += 1
            if compiled.is_valid(parse_json(json.dumps(test["data"]).encode())) is not test["valid"]:
                wrong.append((group.file, test["description"], group.schema))
    assert wrong == []
    assert admitted > 1500


def test_closing_never_accepts_what_the_suite_calls_invalid(suite: Path) -> None:
    """Each schema as the parameters of a tool, each instance as its arguments."""
    refusals, checked, accepted = RefusalHistory(), 0, []
    for group in groups(suite):
        if not isinstance(group.schema, dict):
            continue
        try:
            tool = admit(ToolDefinition.from_elsewhere({"name": "t", "parameters": group.schema}))
        except DefinitionError:
            continue
        for test in group.tests:
            check = validate(tool, json.dumps(test["data"]), refusals, "suite")
            checked += 1
            if check.success and not test["valid"]:
                accepted.append((group.file, test["description"]))
            if not check.success:
                assert check.errors
    assert accepted == []
    assert checked > 1000
