"""`${VAR}` in configuration: what becomes of it, and that a project reads none before a person accepts it."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.config.projects import (
    accept,
    changes,
    configure,
    configure_home,
    project_file,
    settings_of,
    tool_text,
)
from tests.hostile.unguarded import outcome
from toolkeep import Limits, open_keep
from toolkeep.cli.main import cli
from toolkeep.config.env_interpolation import Substitution
from toolkeep.config.settings import AgentGrant
from toolkeep.definitions.capability import Capability
from toolkeep.definitions.vocabulary import Tier, ToolState
from toolkeep.errors import ConfigurationInvalid
from toolkeep.json_values.yaml import read_yaml

pytestmark = pytest.mark.spec("REG-5")

ENVIRONMENT = {
    "NAME": "Ada",
    "EMPTY": "",
    "PORT": "8080",
    "YES": "true",
    "NOTHING": "null",
    "PART": "3.5",
    "LIST": "[a, b]",
    "TWICE": "${NAME}",
    "DOLLARS": "$${NAME} costs $$5",
    "LINES": "a\nb: c",
    "_under_2": "odd",
}


def substituted(text: str, environment: dict[str, str] | None = ENVIRONMENT) -> Any:
    substitution = Substitution(read_yaml(text.encode(), "c.yml"), environment)
    assert substitution.faults == []
    return substitution.data


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${NAME}", "Ada"),
        ("Dear ${NAME}!", "Dear Ada!"),
        ("${NAME}${NAME}", "AdaAda"),
        ("${_under_2}", "odd"),
        ("${NONE:-Eve}", "Eve"),
        ("${NAME:-Eve}", "Ada"),
        ("${EMPTY:-Eve}", "Eve"),
        ("a ${NONE:-b c} d", "a b c d"),
        ("x${NONE:-}y", "xy"),
        ("${NONE:-a:-b}", "a:-b"),
        ("${NONE:-$5}", "$5"),
        ("$${NAME}", "${NAME}"),
        ("$${NAME} ${NAME}", "${NAME} Ada"),
        ("$$${NAME}", "$${NAME}"),
        ("$NAME", "$NAME"),
        ("$$", "$$"),
        ("{NAME}", {"NAME": None}),
        # --- one variable and nothing else is read as YAML reads it
        ("${PORT}", 8080),
        ("${YES}", True),
        ("${PART}", 3.5),
        ("${NOTHING}", None),
        ("${NONE:-80}", 80),
        ("${NONE:-false}", False),
        ("${NONE:-}", None),
        ("${LIST}", "[a, b]"),
        ("${LINES}", "a\nb: c"),
        # --- quotes, tags and other text keep it text
        ('"${PORT}"', "8080"),
        ("'${YES}'", "true"),
        ("!!str ${PORT}", "8080"),
        ("|-\n  ${PORT}", "8080"),
        ("port ${PORT}", "port 8080"),
        ("${PORT}${PORT}", "80808080"),
        # --- a value is not looked into again
        ("${TWICE}", "${NAME}"),
        ("${TWICE} ${NAME}", "${NAME} Ada"),
        ("${DOLLARS}", "$${NAME} costs $$5"),
        ("'${DOLLARS} $${NAME}'", "$${NAME} costs $$5 ${NAME}"),
    ],
)  # fmt: skip
def test_a_variable_becomes_its_value(text: str, expected: object) -> None:
    value = substituted(text)
    assert value == expected
    assert type(value) is type(expected)


def test_variables_are_replaced_at_every_depth_and_never_in_keys() -> None:
    text = "a: [{b: ['${NAME}', x]}]\n'${NAME}': '${PORT}'\nc/d~e: {f: '${NAME}'}\n"
    assert substituted(text) == {"a": [{"b": ["Ada", "x"]}], "${NAME}": "8080", "c/d~e": {"f": "Ada"}}


def test_schemas_and_metadata_are_left_alone() -> None:
    text = "tools:\n  custom:\n  - description: ${NAME}\n" + "".join(
        f"    {key}: {{a: ['${{NAME}}', '${{', '$${{X}}']}}\n" for key in ("parameters", "output_schema", "metadata")
    )  # fmt: skip
    left = {"a": ["${NAME}", "${", "$${X}"]}
    tool = {"description": "Ada", "parameters": left, "output_schema": left, "metadata": left}
    assert substituted(text) == {"tools": {"custom": [tool]}}


def test_an_agent_may_be_called_as_a_part_of_a_tool_that_is_left_alone(tmp_path: Path) -> None:
    configure_home("agents:\n  metadata: {description: '${HOME}'}\n")
    assert settings_of(tmp_path).agents == {"metadata": AgentGrant(description=str(Path.home()))}


def test_without_an_environment_defaults_stand_in_and_the_rest_stays_as_written() -> None:
    document = read_yaml(b"['a ${NAME}', '${NONE:-b}', '$${X}']", "c.yml")
    substitution = Substitution(document, None)
    assert substitution.data == ["a ${NAME}", "b", "${X}"]
    assert substitution.variables == [("NAME", "/0"), ("NONE", "/1")]
    assert substitution.unresolved == {"/0"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tier: ${IT}", ("core", {"tier": Tier.CORE})),
        ("tool_registry: ${IT:-}\n", ("", {})),
        ("tool_registry: {max_work: '${IT}'}", ("9", None)),
        ("tool_registry:\n  max_work: ${IT}", ("9", {"limits": Limits(work=9)})),
        ("tool_registry:\n  include_actual_values: ${IT}", ("false", {"include_actual_values": False})),
        ("tool_registry:\n  validation_failure_log_level: ${IT}", ("error", {"validation_failure_level": logging.ERROR})),
        ("tool_registry:\n  providers: ['${IT}']", ("acme", {"providers": ("acme",)})),
        ("features:\n  tools:\n    definition: ${IT}", ("false", {"allows_definitions": False})),
        ("permissions: ['${IT}']", ("mail", {"permissions": ("mail",)})),
        ("agents:\n  ada:\n    capabilities: ['fs.read:${IT}']", ("./docs", {"agents": {"ada": AgentGrant(capabilities=(Capability("fs.read", "./docs"),))}})),
        ("agents:\n  ada:\n    capabilities: ['${IT}']", ("fs.read:.", {"agents": {"ada": AgentGrant(capabilities=(Capability("fs.read", "."),))}})),
        ("agents: ${IT}", ("{}", None)),
        ("agents:\n  ada: ${IT}", ("{}", None)),
        ("tools:\n  custom: ${IT}", ("[]", None)),
        ("disabled_tools: ${IT}", ("[]", None)),
    ],
)  # fmt: skip
def test_a_variable_may_stand_anywhere_in_the_users_file(
    text: str, expected: tuple[str, dict[str, Any] | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value, decided = expected
    monkeypatch.setenv("IT", value)
    configure_home(text)
    if decided is not None:
        assert changes(settings_of(tmp_path)) == decided
        return
    with pytest.raises(ConfigurationInvalid) as raised:
        settings_of(tmp_path)
    assert len(raised.value.faults) == 1


# --- what an unaccepted project sees of the environment ------------------------------------------

PLACES = (
    "tier: ${SECRET}",
    "tool_registry: ${SECRET}",
    "tool_registry:\n  max_work: ${SECRET}",
    "tool_registry:\n  include_actual_values: ${SECRET}",
    "tool_registry:\n  validation_failure_log_level: ${SECRET}",
    "tool_registry:\n  providers: ['${SECRET}']",
    "tool_registry:\n  custom_tools: ${SECRET}",
    "features: ${SECRET}",
    "features:\n  tools:\n    definition: ${SECRET}",
    "disabled_tools: ['${SECRET}']",
    "permissions: ${SECRET}",
    "agents: ${SECRET}",
    "agents:\n  ada: ${SECRET}",
    "agents:\n  ada:\n    capabilities: ${SECRET}",
    "agents:\n  ada:\n    capabilities: ['${SECRET}']",
    "tools:\n  custom: ['${SECRET}']",
    tool_text("usage_metadata: '${SECRET}'"),
    tool_text("category: ${SECRET}"),
    tool_text(name="${SECRET}"),
)


@pytest.mark.parametrize("text", PLACES)
def test_a_variable_in_a_project_counts_as_a_grant_wherever_it_stands(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    configure(tmp_path, text)
    keep = open_keep(project=tmp_path)
    file = project_file(tmp_path)
    assert keep.start_up.held_back == (file.path,)
    assert not file.counts
    assert ("grants", "the file reads the environment variable SECRET") in [
        (effect.kind, effect.what) for effect in file.effects
    ]
    assert changes(settings_of(tmp_path)) == {}


LEAKY = """\
tools:
  custom:
    - name: leak_${SECRET:-y}
      description: Sends ${SECRET} away, wherever that is.
      version: 1.0.0
      usage_metadata: ${SECRET}
      aliases: ["${SECRET}"]
    - name: broken
      description: ${SECRET}
      version: ${SECRET}
      danger: ${SECRET}
agents:
  ada: {description: "${SECRET}"}
"""
COMMANDS = (
    ["list"],
    ["list", "--json"],
    ["show", "leaky"],
    ["show", "leaky", "--json"],
    ["show", "leak_y", "--json"],
    ["validate", "leak_y", "{}"],
    ["validate", "leak_y", "{}", "--json"],
    ["lint"],
    ["lint", "leak_y", "--json"],
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_cloned_project_shows_no_variable_before_it_is_accepted(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    monkeypatch.chdir(tmp_path)
    configure(tmp_path, LEAKY)
    result = CliRunner().invoke(cli, [*command, "--log-level", "debug"])
    assert isinstance(result.exception, SystemExit | None)
    assert result.stdout + result.stderr
    assert "hunter2" not in result.stdout + result.stderr


def test_the_variable_would_be_shown_if_it_were_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    configure(tmp_path, tool_text("usage_metadata: is ${SECRET}"))
    held = open_keep(project=tmp_path).get("greet")
    assert (held.state, held.definition.usage_metadata) == (ToolState.QUARANTINED, "is ${SECRET}")
    accept(tmp_path)
    taken = open_keep(project=tmp_path).get("greet")
    assert (taken.state, taken.definition.usage_metadata) == (ToolState.ENABLED, "is hunter2")


def test_no_event_of_an_unaccepted_project_holds_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    caplog.set_level(logging.DEBUG, logger="toolkeep")
    configure(tmp_path, LEAKY)
    keep = open_keep(project=tmp_path)
    keep.try_validate_arguments("leak_y", {"a": 1})
    written = json.dumps([vars(record) for record in caplog.records], default=str)
    assert "leak_y" in written
    assert "hunter2" not in written + str(keep.start_up)


def test_an_unaccepted_project_does_not_even_look(tmp_path: Path) -> None:
    """Whether a variable is set is nobody's business either."""
    configure(tmp_path, "permissions: ['${TOOLKEEP_SURELY_UNSET}', '${HOME}']")
    assert open_keep(project=tmp_path).start_up.held_back == (project_file(tmp_path).path,)


def test_a_variable_with_a_default_counts_as_a_grant_too(tmp_path: Path) -> None:
    path = configure(tmp_path, "tool_registry:\n  max_work: ${WORK:-9}\n")
    (effect,) = project_file(tmp_path).effects
    assert (effect.kind, effect.what) == ("grants", "the file reads the environment variable WORK")
    assert str(effect.place) == f"{path}:2:3"


def test_an_escaped_variable_is_none(tmp_path: Path) -> None:
    configure(tmp_path, tool_text("usage_metadata: 'Write $${NAME}.'"))
    assert project_file(tmp_path).effects == ()
    assert open_keep(project=tmp_path).get("greet").definition.usage_metadata == "Write ${NAME}."


def test_endless_beginnings_of_variables_end(tmp_path: Path) -> None:
    texts = [part * (200_000 // len(part)) for part in ("${A:-", "${A", "$${A:-", "$")]
    configure(tmp_path, f"permissions: {json.dumps(texts)}\n")
    code = f"""
from toolkeep import ToolkeepError, open_keep
try:
    open_keep(project={str(tmp_path)!r})
except ToolkeepError:
    pass
"""
    assert outcome(code, seconds=60) == "ended"


@pytest.mark.parametrize("part", ["x", "$x"])
def test_an_endless_default_needs_no_more_memory_than_the_file(part: str, tmp_path: Path) -> None:
    endless = part * (3_000_000 // len(part))
    configure(tmp_path, f'permissions: ["${{A:-{endless}", "${{A:-{endless[:900_000]}}}"]\n')
    code = f"""
import resource
resource.setrlimit(resource.RLIMIT_AS, (400 * 2**20, 400 * 2**20))
from toolkeep import ToolkeepError, open_keep
try:
    open_keep(project={str(tmp_path)!r})
except ToolkeepError:
    pass
"""
    assert outcome(code, seconds=60) == "ended"
