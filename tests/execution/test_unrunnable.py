"""What cannot be run says truly why."""

from typing import Any

import pytest

from toolkeep import Code, Keep
from toolkeep.config.settings import Run
from toolkeep.registry.coerce import Offer

DATA: dict[str, Any] = {"name": "never", "description": "Never run.", "side_effects": ["None"]}


class Provider:
    """Brings one tool with what runs it."""

    name = "mine"
    priority = 50

    def __init__(self, runner: Any, data: dict[str, Any]) -> None:
        self._offer = Offer(tool=data, runner=runner)

    def get_tool_definitions(self) -> list[Offer]:
        return [self._offer]


NONE = {**DATA, "constraints": {"required_isolation": "none"}}
RESTRICTED = {**DATA, "constraints": {"required_isolation": "restricted"}}
STRICT = {**DATA, "constraints": {"required_isolation": "strict"}}


@pytest.mark.parametrize(
    ("runner", "data", "code", "why"),
    [
        (None, DATA, Code.NOT_RUNNABLE, "has no runner"),
        (Run(kind="command", target=["ls"]), NONE, Code.ISOLATION_UNAVAILABLE, "requires isolation none, but configured tools never run in the keep's own process"),
        (Run(kind="command", target=["ls"]), RESTRICTED, Code.ISOLATION_UNAVAILABLE, "requires isolation restricted, which starts no programs"),
        (Run(kind="http", target="https://a.example"), STRICT, Code.ISOLATION_UNAVAILABLE, "requires isolation strict, but runs on a server whose isolation is unknown"),
        (Run(kind="python", target="a:b"), NONE, Code.ISOLATION_UNAVAILABLE, "requires isolation none, but configured tools never run in the keep's own process"),
        (object(), DATA, Code.NOT_RUNNABLE, "is run by a object, which is not supported here"),
    ],
)  # fmt: skip
def test_why_a_tool_is_not_run(runner: Any, data: dict[str, Any], code: Code, why: str) -> None:
    keep = Keep()
    keep.load(Provider(runner, data))
    result = keep.call_sync("never", {})
    assert (result.code, f"Tool 'never' {why}." in result.text) == (code, True), result.text
