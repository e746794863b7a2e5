"""The operator at the command line is told which line to add; a model is told only what it lacks."""

from pathlib import Path

import pytest

from tests.definitions.examples import made, with_properties
from toolkeep import Keep

PATH = {"type": "string", "description": "Where.", "maxLength": 100, "x-touches": "fs.write"}


@pytest.mark.parametrize(
    ("agent", "advice"),
    [
        (
            "operator",
            ("Add to .agent/config.yml, then run `toolkeep accept`: agents: "
            '{"operator": {inherit: defaults, capabilities: ["fs.write:."], '
            'permissions: ["tool.filesystem.write"]}}'),
        ),
        ("local", "Do without it, or ask the operator."),
    ],
)  # fmt: skip
def test_who_is_refused_a_file_is_told_what_is_his_to_change(
    agent: str, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    parameters = with_properties({"path": PATH}, required=["path"], additionalProperties=False)
    fields = {"capabilities": ["fs.write"], "required_permissions": ["tool.filesystem.write"]}
    with Keep() as keep:
        keep.register(made(name="write", client_executed=True, parameters=parameters, **fields))
        result = keep.call_sync("write", {"path": "a.txt"}, agent=agent)
    assert result.error is not None
    assert result.error.errors[0].suggestion == advice


@pytest.mark.parametrize(("agent", "is_advised"), [("operator", True), ("local", False)])
def test_only_the_operator_is_told_how_to_grant_a_permission_or_a_kind(agent: str, is_advised: bool) -> None:
    with Keep() as keep:
        for name, fields in {
            "send": {"required_permissions": ["tool.api.call"]},
            "fetch": {"capabilities": ["net.read"]},
        }.items():
            keep.register(made(name=name, client_executed=True, **fields))
            result = keep.call_sync(name, {}, agent=agent)
            assert ("config.yml" in result.text) is is_advised, result.text
