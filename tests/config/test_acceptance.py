"""A project's file that runs, grants or loosens anything counts only once a person has accepted its content."""

import os
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from tests.config.projects import (
    accept,
    changes,
    configure,
    configure_home,
    project_file,
    settings_of,
    tool_text,
)
from toolkeep import Limits, open_keep
from toolkeep.calls import Refusal
from toolkeep.config import project_code
from toolkeep.config.accepted_code import AcceptedCode
from toolkeep.config.settings import DEFAULT_SETTINGS, AgentGrant
from toolkeep.definitions.capability import Capability
from toolkeep.definitions.vocabulary import Tier, ToolState
from toolkeep.errors import Code, StateUnusable
from toolkeep.keep.open import open_state, read_proposed
from toolkeep.storage.sqlite.state_db import KeepState

pytestmark = pytest.mark.spec("REG-5")

LIMITS = {
    "max_schema_size": 51200,
    "max_schema_depth": 20,
    "max_argument_size": 1048576,
    "max_argument_depth": 64,
    "max_fanout": 256,
    "max_work": 300000,
    "max_errors": 50,
}


@pytest.fixture(autouse=True)
def _variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"URL": "http://x.org", "RUN": "x", "CLIENT": "true"}.items():
        monkeypatch.setenv(name, value)


def registry(line: str) -> str:
    return f"tool_registry:\n  {line}\n"


# The user's file, the project's, and the effects that a person would be shown: kind, what, line and column.
EFFECTS = [
    pytest.param("", tool_text("run: {python: 'a:b'}"), [("runs", "tool 'greet' runs python: a:b", "3:7")], id="python"),
    pytest.param("", tool_text("run: {command: [rm, -rf, /]}"), [("runs", "tool 'greet' runs command: rm -rf /", "3:7")], id="command"),
    pytest.param("", tool_text("run: {http: 'http://x.org'}"), [("runs", "tool 'greet' runs http: http://x.org", "3:7")], id="http"),
    pytest.param("", tool_text("run: {wasm: a.wasm}"), [("runs", "tool 'greet' runs wasm: a.wasm", "3:7")], id="wasm"),
    pytest.param("", tool_text("run: {wasm: {path: a.wasm, fuel: 5}}"), [("runs", "tool 'greet' runs wasm: {\"path\": \"a.wasm\", \"fuel\": 5}", "3:7")], id="wasm_with_options"),
    pytest.param("", tool_text("run: {python: a, wasm: b}"), [("runs", "tool 'greet' runs {\"python\": \"a\", \"wasm\": \"b\"}", "3:7")], id="broken_run"),
    pytest.param("", tool_text("run: ''"), [("runs", "tool 'greet' runs ", "3:7")], id="empty_run"),
    pytest.param("", tool_text("client_executed: true"), [("runs", "tool 'greet' is executed by the client", "3:7")], id="client"),
    *(
        pytest.param("", tool_text("client_executed: true", key=key), [("runs", "tool 'greet' is executed by the client", "3:7")], id=f"client_under_{key}")
        for key in ("tool_registry/custom_tools", "tools/custom_tools")
    ),
    pytest.param("", registry("providers: [acme]"), [("runs", "provider 'acme' runs its code in this process", "2:15")], id="provider"),
    pytest.param("", "agents:\n  ada:\n    capabilities: [fs.read:., net.read:a.org]\n", [("grants", "agent 'ada' may call tools", "2:3"), ("grants", "agent 'ada' holds fs.read:.", "3:20"), ("grants", "agent 'ada' holds net.read:a.org", "3:31")], id="capability"),
    pytest.param("", "agents:\n  ada: {description: Ada}\n", [("grants", "agent 'ada' may call tools", "2:3")], id="agent"),
    pytest.param("", "agents:\n  ada: {inherit: defaults}\n", [("grants", "agent 'ada' may call tools", "2:3"), ("grants", "agent 'ada' holds the defaults: fs.read:., tool.filesystem.read, tool.knowledge.read, tool.vcs.read", "2:9")], id="defaults"),
    pytest.param("", "agents:\n  a/b~c:\n    permissions: [tool.api.call]\n", [("grants", "agent 'a/b~c' may call tools", "2:3"), ("grants", "agent 'a/b~c' holds tool.api.call", "3:19")], id="permission_of_an_agent"),
    pytest.param("", "audit:\n  checkpoint_file: /etc/x\n", [("grants", "checkpoints of the log go to /etc/x", "2:3")], id="checkpoints"),
    pytest.param("", "audit:\n  witnesses:\n  - {url: https://w.org/a, key: library+ec33deea+BAOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4}\n  witness_for: [toolkeep/83f45518f2cef77d+feb06fed+AQOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4]\n", [("grants", "checkpoints of the log go to https://w.org/a, and library+ec33deea+BAOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4 cosigns them", "3:5"), ("grants", "a server cosigns the log of toolkeep/83f45518f2cef77d+feb06fed+AQOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4", "4:17")], id="witnesses"),
    pytest.param("", "permissions: [mail]\n", [("grants", "permission mail exists", "1:15")], id="permission"),
    pytest.param("", tool_text("usage_metadata: ${HOME}"), [("grants", "the file reads the environment variable HOME", "6:7")], id="variable"),
    pytest.param("", tool_text("run: {http: '${URL}'}"), [("runs", "tool 'greet' runs http: ${URL}", "3:7"), ("grants", "the file reads the environment variable URL", "6:13")], id="http_of_a_variable"),
    pytest.param("", tool_text("run: ${RUN}"), [("runs", "tool 'greet' runs ${RUN}", "3:7"), ("grants", "the file reads the environment variable RUN", "6:7")], id="run_of_a_variable"),
    pytest.param("", tool_text("client_executed: ${CLIENT}"), [("runs", "tool 'greet' is executed by the client", "3:7"), ("grants", "the file reads the environment variable CLIENT", "6:7")], id="client_of_a_variable"),
    *(
        pytest.param("", registry(f"{key}: {usual + 1}"), [("loosens", f"{key} rises from {usual} to {usual + 1}", "2:3")], id=key)
        for key, usual in LIMITS.items()
    ),
    pytest.param(registry("max_work: 9"), registry("max_work: 10"), [("loosens", "max_work rises from 9 to 10", "2:3")], id="limit_over_the_users"),
    pytest.param(registry("include_actual_values: false"), registry("include_actual_values: true"), [("loosens", "errors show argument values", "2:3")], id="values"),
    pytest.param("", registry("validation_failure_log_level: info"), [("loosens", "refused calls are logged at a lower level", "2:3")], id="info"),
    pytest.param("", registry("validation_failure_log_level: debug"), [("loosens", "refused calls are logged at a lower level", "2:3")], id="debug"),
    pytest.param(registry("validation_failure_log_level: error"), registry("validation_failure_log_level: warning"), [("loosens", "refused calls are logged at a lower level", "2:3")], id="quieter_than_the_users"),
    pytest.param("", "disabled_tools: [a, b@2.0.0]\n", [("loosens", "without b@2.0.0 another version of it may answer", "1:21")], id="one_version_closed"),
    pytest.param("", "unconfined: [read_file]\n", [("loosens", "read_file runs unconfined where a machine cannot confine it", "1:14")], id="unconfined"),
    pytest.param("tier: core", "tier: teams\n", [("loosens", "the tier rises to teams", "1:1")], id="tier"),
    pytest.param("tier: teams", "tier: Enterprise\n", [("loosens", "the tier rises to enterprise", "1:1")], id="tier_in_capitals"),
    pytest.param("features: {tools: {definition: false}}", "features:\n  tools:\n    definition: true\n", [("loosens", "custom definitions are allowed again", "3:5")], id="definitions"),
]  # fmt: skip

LONG = "x" * 5000

# As written and whole: what a variable or the end of a long text holds would be accepted unseen.
WHOLE = [
    pytest.param(tool_text(f"run: {{command: [rm, {LONG}, /]}}"), f"tool 'greet' runs command: rm {LONG} /", id="command"),
    pytest.param(tool_text(f"run: {{http: {{url: 'http://x.org', body: {LONG}}}}}"), f'tool \'greet\' runs http: {{"url": "http://x.org", "body": "{LONG}"}}', id="http"),
    pytest.param(f"agents: {{ada: {{capabilities: ['fs.read:{LONG[:4000]}']}}}}", f"agent 'ada' holds fs.read:{LONG[:4000]}", id="capability"),
    pytest.param(tool_text("run: {command: ['${SHELL:-true}', -c]}"), "tool 'greet' runs command: '${SHELL:-true}' -c", id="variable_in_a_command"),
    pytest.param(tool_text("run: {python: '${CODE:-a:b}'}"), "tool 'greet' runs python: ${CODE:-a:b}", id="variable_as_python"),
    pytest.param(tool_text("client_executed: ${CLIENT:-false}"), "tool 'greet' is executed by the client", id="variable_as_client"),
    pytest.param(tool_text("run: {wasm: a}", name="'greet_${WHO:-you}'"), "tool 'greet_${WHO:-you}' runs wasm: a", id="variable_in_a_name"),
    pytest.param(registry("providers: ['${WHO:-good}']"), "provider '${WHO:-good}' runs its code in this process", id="variable_as_provider"),
    pytest.param("agents: {ada: {capabilities: ['fs.read:${WHERE:-./docs}']}}", "agent 'ada' holds fs.read:${WHERE:-./docs}", id="variable_in_a_capability"),
    pytest.param("agents: {ada: {permissions: ['${WHAT:-tool.api.call}']}}", "agent 'ada' holds ${WHAT:-tool.api.call}", id="variable_as_permission_of_an_agent"),
    pytest.param("permissions: ['${WHAT:-mail}']", "permission ${WHAT:-mail} exists", id="variable_as_permission"),
    pytest.param("audit: {checkpoint_file: '${WHERE:-/mnt/x}'}", "checkpoints of the log go to ${WHERE:-/mnt/x}", id="variable_as_checkpoints"),
    pytest.param('agents: {"ada\\n  - nothing": {permissions: [tool.api.call]}}', "agent 'ada\\n  - nothing' holds tool.api.call", id="forged_line"),
    pytest.param(tool_text('run: {command: [a, "b\\n\\e[2Jc"]}'), "tool 'greet' runs command: a 'b\\n\\u001b[2Jc'", id="control_characters"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "what"), WHOLE)
def test_a_person_is_shown_an_effect_whole_and_as_it_is_written(text: str, what: str, tmp_path: Path) -> None:
    configure(tmp_path, text)
    assert what in [effect.what for effect in project_file(tmp_path).effects]


INERT = [
    pytest.param("", "", id="empty"),
    pytest.param("", tool_text("danger: low", "usage_metadata: Use it."), id="definition"),
    pytest.param("", tool_text("run:", "client_executed: false"), id="definition_that_runs_nothing"),
    pytest.param("", tool_text("capabilities: [fs.read]", "required_permissions: [mail]"), id="needs_are_no_grants"),
    pytest.param("", "disabled_tools: [a, b]\n", id="disabled_tools"),
    pytest.param("", registry("disabled_tools: [a]"), id="disabled_tools_inside"),
    *(pytest.param("", registry(f"{key}: {usual}"), id=f"same_{key}") for key, usual in LIMITS.items()),
    *(pytest.param("", registry(f"{key}: 1"), id=f"lower_{key}") for key in LIMITS),
    pytest.param("", registry("pattern_timeout_ms: 999999"), id="pattern_timeout_ms"),
    pytest.param("", "tier: core\n", id="lower_tier"),
    pytest.param("tier: core", "tier: core\n", id="same_tier"),
    pytest.param("", registry("include_actual_values: false"), id="no_values"),
    pytest.param("", registry("include_actual_values: true"), id="values_as_usual"),
    pytest.param("", registry("validation_failure_log_level: warning"), id="usual_level"),
    pytest.param("", registry("validation_failure_log_level: error"), id="louder_level"),
    pytest.param("", "features: {tools: {definition: false}}\n", id="no_definitions"),
    pytest.param("", "features: {tools: {definition: true}}\n", id="definitions_as_usual"),
    pytest.param("", registry("strict_mode: true"), id="strict_mode"),
    pytest.param("", "approvals: {paranoid: true}\n", id="paranoia"),
    pytest.param("approvals: {paranoid: true}", "approvals: {paranoid: false}\n", id="paranoia_stays"),
    pytest.param("", tool_text("usage_metadata: 'costs $${PRICE}'"), id="escaped_variable"),
    pytest.param("", tool_text("metadata: {run: '${HOME}', client_executed: true}"), id="metadata"),
]  # fmt: skip


@pytest.mark.parametrize(("user", "text", "effects"), EFFECTS)
def test_a_file_with_an_effect_does_not_count_until_it_is_accepted(
    user: str, text: str, effects: list[tuple[str, str, str]], tmp_path: Path
) -> None:
    configure_home(user)
    path = configure(tmp_path, text)
    without = settings_of(tmp_path / "elsewhere")
    file = project_file(tmp_path)
    assert [(e.kind, e.what, str(e.place)) for e in file.effects] == [
        (kind, what, f"{path}:{place}") for kind, what, place in effects
    ]
    assert not file.counts
    assert changes(settings_of(tmp_path)) == changes(without)
    assert open_keep(project=tmp_path).start_up.held_back == (str(path),)


@pytest.mark.parametrize(("user", "text", "effects"), EFFECTS)
def test_an_accepted_file_counts(
    user: str, text: str, effects: list[tuple[str, str, str]], tmp_path: Path
) -> None:
    configure_home(user)
    configure(tmp_path, text)
    accept(tmp_path)
    file = project_file(tmp_path)
    assert (file.counts, len(file.effects)) == (True, len(effects))
    assert open_keep(project=tmp_path).start_up.held_back == ()


@pytest.mark.parametrize(("user", "text"), INERT)
def test_a_file_that_only_describes_and_closes_counts_at_once(user: str, text: str, tmp_path: Path) -> None:
    configure_home(user)
    configure(tmp_path, text)
    file = project_file(tmp_path)
    assert (file.effects, file.counts) == ((), True)
    keep = open_keep(project=tmp_path)
    assert keep.start_up.held_back == ()
    assert not any(tool.state is ToolState.QUARANTINED for tool in keep.tools())


@pytest.mark.parametrize(("user", "text", "effects"), EFFECTS)
def test_the_users_own_file_needs_no_acceptance(
    user: str, text: str, effects: list[tuple[str, str, str]], tmp_path: Path
) -> None:
    configure_home(user, name=".acode/config.yml")
    configure_home(text)
    assert all(file.counts for file in settings_of(tmp_path).files)
    assert open_keep(project=tmp_path).start_up.held_back == ()


# --- while it is not accepted --------------------------------------------------------------------

EVERYTHING = """\
tier: core
features: {tools: {definition: false}}
disabled_tools: [agent_hello_world]
permissions: [mail]
approvals: {wait: 60, paranoid: true}
agents: {ada: {capabilities: ["fs.read:."]}}
tool_registry:
  max_work: 5
  max_errors: 99
  include_actual_values: false
  validation_failure_log_level: error
  providers: [acme]
  custom_tools:
    - {name: runs, description: Runs a command., version: 1.0.0, run: {command: [id]}}
    - {name: stays, description: Runs nothing at all., version: 1.0.0}
    - {name: BAD, description: Is called badly., version: 1.0.0}
"""


def test_nothing_of_an_unaccepted_file_counts_not_even_what_closes(tmp_path: Path) -> None:
    configure(tmp_path, EVERYTHING)
    assert changes(settings_of(tmp_path)) == {}
    keep = open_keep(project=tmp_path)
    assert keep.try_validate_arguments("agent_hello_world", {"name": "Ada"}).success


def test_all_of_an_accepted_file_counts(tmp_path: Path) -> None:
    path = configure(tmp_path, EVERYTHING)
    accept(tmp_path)
    assert changes(settings_of(tmp_path)) == {
        "tier": Tier.CORE,
        "allows_definitions": False,
        "limits": Limits(work=5, errors=99),
        "include_actual_values": False,
        "validation_failure_level": 40,
        "providers": ("acme",),
        "disabled": {"agent_hello_world": f"disabled in {path}:3:18"},
        "permissions": ("mail",),
        "agents": {"ada": AgentGrant(capabilities=(Capability("fs.read", "."),))},
        "is_paranoid": True,
        "approval_wait_s": 60.0,
    }


def test_tools_of_an_unaccepted_file_are_listed_and_held_back(tmp_path: Path) -> None:
    path = configure(tmp_path, EVERYTHING)
    keep = open_keep(project=tmp_path)
    states = {tool.name: (tool.state, tool.why) for tool in keep.tools() if tool.is_custom}
    held = (ToolState.QUARANTINED, f"{path} is not accepted yet: it would run, grant or loosen something")
    assert states == {"runs": held, "stays": held}
    assert [(skip.tool, skip.error.code) for skip in keep.start_up.skipped] == [
        ("BAD", Code.DEFINITION_INVALID)
    ]
    for name in states:
        refusal = keep.try_validate_arguments(name, {})
        assert isinstance(refusal, Refusal)
        assert refusal.code.value == "ACODE-TSR-018"
    assert not {tool.name for tool in keep.search("runs a command")} & set(states)
    assert all(tool.is_built_in for tool in keep.tools(enabled=True))


def test_tools_of_an_accepted_file_answer(tmp_path: Path) -> None:
    configure(tmp_path, tool_text("run: {command: [id]}"))
    accept(tmp_path)
    assert open_keep(project=tmp_path).try_validate_arguments("greet", {}).success


def test_an_unaccepted_file_takes_no_name_from_the_user(tmp_path: Path) -> None:
    configure_home(tool_text("usage_metadata: mine"))
    configure(tmp_path, tool_text("run: {command: [id]}", version="9.0.0"))
    keep = open_keep(project=tmp_path)
    assert keep.get("greet").definition.usage_metadata == "mine"
    assert keep.try_validate_arguments("greet", {}).success


def test_a_file_that_counts_at_once_takes_no_tool_over_from_the_user(tmp_path: Path) -> None:
    """A newer version without what the user's demands would check calls more loosely."""
    schema = "parameters: {type: object, properties: {to: {enum: [staging], description: Where.}}}"
    configure_home(tool_text(schema, name="deploy"))
    configure(tmp_path, tool_text("parameters: {type: object}", name="deploy", version="9.0.0"))
    assert project_file(tmp_path).counts
    keep = open_keep(project=tmp_path)
    assert [tool.version for tool in keep.versions("deploy")] == ["1.0.0"]
    assert [(skip.tool, skip.error.code) for skip in keep.start_up.skipped] == [
        ("deploy", Code.DUPLICATE_TOOL)
    ]


PROVIDER = """\
from pathlib import Path
Path({marker!r}).touch()
class Provider:
    name = "acme"
    priority = 500
    def get_tool_definitions(self):
        return []
"""


@pytest.fixture
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed provider `acme`; the marker appears when it is imported."""
    marker = tmp_path / "imported"
    site = tmp_path / "site"
    info = site / "acme_provider-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme_provider\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[toolkeep.providers]\nacme = acme_provider:Provider\n")
    (site / "acme_provider.py").write_text(PROVIDER.format(marker=str(marker)))
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "acme_provider", raising=False)
    return marker


def test_a_provider_that_an_unaccepted_file_names_is_not_imported(marker: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    configure(project, registry("providers: [acme]"))
    assert open_keep(project=project).start_up.skipped == ()
    assert not marker.exists()
    assert "acme_provider" not in sys.modules
    accept(project)
    assert open_keep(project=project).start_up.skipped == ()
    assert marker.exists()


def test_a_provider_that_nobody_names_is_not_imported(marker: Path, tmp_path: Path) -> None:
    open_keep(project=tmp_path)
    assert not marker.exists()


# --- what exactly is accepted --------------------------------------------------------------------

RUNS = tool_text("run: {command: [id]}")


def test_a_person_accepts_the_content_at_the_real_path(tmp_path: Path) -> None:
    path = configure(tmp_path, RUNS)
    file = project_file(tmp_path)
    assert file.path == os.path.realpath(path)
    state = open_state(tmp_path)
    assert state is not None
    state.accept(os.path.realpath(path), file.seal)
    assert project_file(tmp_path).counts


@pytest.mark.parametrize(
    "written", [RUNS + "\n", RUNS + "# why\n", RUNS[:-1], "\ufeff" + RUNS, RUNS.replace("id", "'id'")]
)
def test_comments_and_how_it_is_written_do_not_count(written: str, tmp_path: Path) -> None:
    configure(tmp_path, RUNS)
    accept(tmp_path)
    configure(tmp_path, written)
    assert project_file(tmp_path).counts


def test_the_order_of_keys_does_not_count(tmp_path: Path) -> None:
    configure(tmp_path, "permissions: [mail]\nagents: {ada: {description: A}, bob: {}}\n")
    accept(tmp_path)
    configure(tmp_path, "agents: {bob: {}, ada: {description: A}}\npermissions: [mail]\n")
    assert project_file(tmp_path).counts


@pytest.mark.parametrize("changed", [RUNS.replace("[id]", "[ie]"), RUNS + "disabled_tools: [a]\n"])
def test_saying_something_else_undoes_it(changed: str, tmp_path: Path) -> None:
    configure(tmp_path, RUNS)
    accept(tmp_path)
    configure(tmp_path, changed)
    assert not project_file(tmp_path).counts
    configure(tmp_path, RUNS)
    assert project_file(tmp_path).counts


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("", registry("max_errors: 9"), id="a_limit"),
        pytest.param("", registry("include_actual_values: false"), id="values"),
        pytest.param("", "tier: core", id="tier"),
        pytest.param(
            registry("max_errors: 9"), registry("max_errors: 8"), id="a_limit_that_was_shown_higher"
        ),
    ],
)
def test_an_acceptance_ends_when_the_file_would_do_more_over_the_users_settings(
    before: str, after: str, tmp_path: Path
) -> None:
    configure_home(before)
    text = (
        f"tier: enterprise\n{registry('max_errors: 50')}  include_actual_values: true\npermissions: [mail]\n"
    )
    configure(tmp_path, text)
    accept(tmp_path)
    shown = project_file(tmp_path)
    assert shown.counts
    configure_home(after)
    file = project_file(tmp_path)
    assert (file.counts, file.seal == shown.seal) == (False, False)
    assert {effect.what for effect in file.effects} != {effect.what for effect in shown.effects}
    accept(tmp_path)
    assert project_file(tmp_path).counts


def test_an_acceptance_outlives_settings_of_the_user_that_it_does_not_touch(tmp_path: Path) -> None:
    configure(tmp_path, RUNS)
    accept(tmp_path)
    configure_home("tier: teams\ndisabled_tools: [other]\n" + registry("max_errors: 9"))
    assert project_file(tmp_path).counts


def test_the_hash_of_the_content_alone_accepts_nothing(tmp_path: Path) -> None:
    configure(tmp_path, RUNS)
    state, file = open_state(tmp_path), project_file(tmp_path)
    assert state is not None
    state.accept(file.path, sha256(RUNS.encode()).hexdigest())
    assert not project_file(tmp_path).counts


def test_accepting_the_new_content_forgets_the_old(tmp_path: Path) -> None:
    configure(tmp_path, RUNS)
    accept(tmp_path)
    configure(tmp_path, RUNS + "disabled_tools: [more]\n")
    accept(tmp_path)
    configure(tmp_path, RUNS)
    assert not project_file(tmp_path).counts


# --- the code that it names ----------------------------------------------------------------------

PYTHON = tool_text("effects: none", "run: {python: 'greeting:greet'}")


def write_code(project: Path) -> None:
    configure(project, PYTHON)
    (project / "greeting.py").write_text("from words import HELLO\ndef greet(): return HELLO\n")
    (project / "words.py").write_text("HELLO = 'hello'\n")


@pytest.mark.parametrize("name", ["greeting.py", "words.py"])
def test_changed_code_withdraws_the_acceptance_and_is_named(name: str, tmp_path: Path) -> None:
    write_code(tmp_path)
    accept(tmp_path)
    assert open_keep(project=tmp_path).get("greet").state is ToolState.ENABLED
    (tmp_path / name).write_text("HELLO = greet = print\n")
    held = open_keep(project=tmp_path).get("greet")
    assert held.state is ToolState.QUARANTINED
    assert held.why.startswith(f"{name} changed since you accepted ")


def test_code_that_the_accepted_one_does_not_import_may_change(tmp_path: Path) -> None:
    write_code(tmp_path)
    accept(tmp_path)
    (tmp_path / "other.py").write_text("x = 1\n")
    assert project_file(tmp_path).counts


def test_a_module_that_python_would_prefer_withdraws_the_acceptance(tmp_path: Path) -> None:
    write_code(tmp_path)
    accept(tmp_path)
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "__init__.py").write_text("HELLO = 'evil'\n")
    assert project_file(tmp_path).changed_code == ("words/__init__.py",)


@pytest.mark.parametrize(
    "run", ["{command: [./bin/greet]}", "{wasm: bin/greet}", "{process: [sh, ./bin/greet]}"]
)
def test_programs_and_modules_in_the_project_are_accepted_with_it(run: str, tmp_path: Path) -> None:
    configure(tmp_path, tool_text(f"run: {run}"))
    program = tmp_path / "bin" / "greet"
    program.parent.mkdir()
    program.write_text("echo hello\n")
    accept(tmp_path)
    assert project_file(tmp_path).counts
    program.write_text("echo evil\n")
    assert project_file(tmp_path).changed_code == ("bin/greet",)


def test_a_keep_that_is_open_refuses_code_that_changed_since_it_was_accepted(tmp_path: Path) -> None:
    write_code(tmp_path)
    accept(tmp_path)
    (tmp_path / "greeting.py").touch()
    with open_keep(project=tmp_path) as keep:
        (tmp_path / "greeting.py").write_text("def greet(): return 'evil'\n")
        result = keep.call_sync("greet", {})
        assert (result.code, result.status) == (Code.TOOL_QUARANTINED, "error")
        assert "greeting.py" in result.text
        (tmp_path / "greeting.py").write_text("def greet(): return 'hello'\n")
        assert keep.call_sync("greet", {}).code is Code.TOOL_QUARANTINED


def test_code_that_changes_while_a_person_is_asked_is_not_run_and_its_key_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_code(tmp_path)
    accept(tmp_path)
    looks = iter(["", "greeting.py", "greeting.py"])
    monkeypatch.setattr(AcceptedCode, "changed", lambda _: next(looks))
    with open_keep(project=tmp_path) as keep:
        found = [keep.call_sync("greet", {}, idempotency_key="once") for _ in range(2)]
    assert [(one.code, one.is_repeated) for one in found] == [(Code.TOOL_QUARANTINED, False)] * 2


def test_a_keep_that_is_open_refuses_a_wasm_module_that_changed_since_it_was_accepted(tmp_path: Path) -> None:
    configure(tmp_path, tool_text("run: {wasm: greet.wasm}"))
    (tmp_path / "greet.wasm").write_bytes(b"\0asm one")
    accept(tmp_path)
    with open_keep(project=tmp_path) as keep:
        assert keep.get("greet").is_enabled
        (tmp_path / "greet.wasm").write_bytes(b"\0asm two")
        result = keep.call_sync("greet", {})
    assert (result.code, "greet.wasm" in result.text) == (Code.TOOL_QUARANTINED, True)


def test_what_was_hashed_between_two_looks_is_not_trusted(tmp_path: Path) -> None:
    """The hashes that count are those that were accepted, not those of when the tool was loaded."""
    write_code(tmp_path)
    accept(tmp_path)
    (tool,) = settings_of(tmp_path).tools
    (tmp_path / "words.py").write_text("HELLO = 'evil'\n")
    code = AcceptedCode(tool.data["run"], tmp_path, tool.code)
    assert code.changed() == "words.py"
    (tmp_path / "words.py").write_text("HELLO = 'hello'\n")
    assert (code.changed(), code.changed()) == ("", "")
    (tmp_path / "words.so").touch()
    assert code.changed() == "words.so"


def test_code_that_became_too_much_to_read_is_not_what_was_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_code(tmp_path)
    accept(tmp_path)
    (tool,) = settings_of(tmp_path).tools
    code = AcceptedCode(tool.data["run"], tmp_path, tool.code)
    monkeypatch.setattr(project_code, "CODE_FILES", 1)
    assert "more than 1 files" in code.changed()


def test_a_change_under_the_old_time_and_size_is_noticed(tmp_path: Path) -> None:
    write_code(tmp_path)
    accept(tmp_path)
    (tool,) = settings_of(tmp_path).tools
    code = AcceptedCode(tool.data["run"], tmp_path, tool.code)
    assert code.changed() == ""
    before = (tmp_path / "words.py").stat()
    (tmp_path / "words.py").write_text("HELLO = 'h3llo'\n")
    os.utime(tmp_path / "words.py", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (tmp_path / "words.py").stat().st_size == before.st_size
    assert code.changed() == "words.py"


def test_the_program_of_an_upstream_in_the_project_is_accepted_with_it(tmp_path: Path) -> None:
    configure(tmp_path, "upstreams: {files: {mcp: files.json, command: [./bin/serve, ./bin/more]}}\n")
    (tmp_path / ".agent" / "files.json").write_text('{"tools": []}')
    (tmp_path / "bin").mkdir()
    for name in ("serve", "more"):
        (tmp_path / "bin" / name).write_text("echo hello\n")
    accept(tmp_path)
    assert project_file(tmp_path).counts
    (tmp_path / "bin" / "more").write_text("echo evil\n")
    assert project_file(tmp_path).changed_code == ("bin/more",)


ORDER = "permissions: [shop.order]\n" + tool_text("effects: none", "required_permissions: [shop.order]")


@pytest.mark.spec("POL-3")
def test_a_tool_may_require_a_permission_that_its_file_adds_once_it_is_accepted(tmp_path: Path) -> None:
    """Until then the permission does not exist, and the tool is held back with its file, not refused."""
    configure(tmp_path, ORDER)
    assert open_keep(project=tmp_path).get("greet").state is ToolState.QUARANTINED
    accept(tmp_path)
    accepted = open_keep(project=tmp_path).get("greet")
    assert (accepted.state, [warning.field for warning in accepted.warnings]) == (ToolState.ENABLED, ["run"])


def test_a_first_file_in_a_folder_above_is_noticed(tmp_path: Path) -> None:
    """A folder without an `__init__.py` is a package too, until one is put there and runs first."""
    configure(tmp_path, tool_text("effects: none", "run: {python: 'outer.middle.greeting:greet'}"))
    (tmp_path / "outer" / "middle").mkdir(parents=True)
    (tmp_path / "outer" / "middle" / "greeting.py").write_text("def greet(): return 'hello'\n")
    accept(tmp_path)
    (tool,) = settings_of(tmp_path).tools
    code = AcceptedCode(tool.data["run"], tmp_path, tool.code)
    assert code.changed() == ""
    (tmp_path / "outer" / "__init__.py").write_text("import evil\n")
    assert code.changed() == "outer/__init__.py"


@pytest.mark.parametrize("is_shared", [False, True], ids=["own_state", "shared_state"])
def test_acceptance_is_bound_to_the_path(
    is_shared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_shared:
        monkeypatch.setenv("TOOLKEEP_HOME", str(tmp_path / "state"))
    configure(tmp_path / "mine", RUNS)
    accept(tmp_path / "mine")
    configure(tmp_path / "clone", RUNS)
    assert project_file(tmp_path / "mine").counts
    assert not project_file(tmp_path / "clone").counts


def test_a_project_behind_a_link_is_the_same_project(tmp_path: Path) -> None:
    configure(tmp_path / "mine", RUNS)
    accept(tmp_path / "mine")
    (tmp_path / "link").symlink_to("mine")
    assert project_file(tmp_path / "link").counts


def test_a_linked_file_is_accepted_with_what_it_leads_to(tmp_path: Path) -> None:
    target = configure(tmp_path, RUNS, name="conf/agent.yml")
    link = tmp_path / ".agent" / "config.yml"
    link.parent.mkdir()
    link.symlink_to("../conf/agent.yml")
    assert not project_file(tmp_path).counts
    accept(tmp_path)
    assert project_file(tmp_path).counts
    target.write_text(RUNS.replace("[id]", "[ie]"))
    assert not project_file(tmp_path).counts


@pytest.mark.parametrize("linked", [".agent", ".agent/config.yml"])
@pytest.mark.parametrize("is_shared", [False, True], ids=["own_state", "shared_state"])
def test_a_clone_cannot_borrow_the_acceptance_of_another_project(
    linked: str, is_shared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its `./run.sh` would be another one than the person accepted."""
    if is_shared:
        monkeypatch.setenv("TOOLKEEP_HOME", str(tmp_path / "state"))
    mine, clone = tmp_path / "mine", tmp_path / "clone"
    configure(mine, tool_text("run: {command: [./run.sh]}"))
    accept(mine)
    (clone / linked).parent.mkdir(parents=True)
    (clone / linked).symlink_to(mine / linked)
    assert not project_file(clone).counts


# --- where acceptance is kept --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["TOOLKEEP_HOME", "XDG_STATE_HOME"])
@pytest.mark.parametrize("inside", [".", "state", ".agent", "link"])
def test_state_inside_the_project_is_refused(
    name: str, inside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    configure(project, RUNS)
    (project / "state").mkdir()
    (tmp_path / "link").symlink_to("project/state")
    folder = tmp_path / "link" if inside == "link" else project / inside
    monkeypatch.setenv(name, str(folder))
    with pytest.raises(StateUnusable) as raised:
        open_keep(project=project)
    assert raised.value.message.endswith("is inside the project, which could then accept itself")


def test_state_that_a_clone_brings_along_is_ignored(tmp_path: Path) -> None:
    path = configure(tmp_path, RUNS)
    real = open_state(tmp_path)
    assert real is not None
    digest = real.folder.name
    for planted in (".agent", ".", ".toolkeep", f"toolkeep/{digest}", f".local/state/toolkeep/{digest}"):
        (tmp_path / planted).mkdir(mode=0o700, parents=True, exist_ok=True)
        (tmp_path / planted).chmod(0o700)
        KeepState(tmp_path / planted).accept(os.path.realpath(path), project_file(tmp_path).seal)
    assert (tmp_path / ".agent" / "state.db").exists()
    assert not project_file(tmp_path).counts
    assert open_keep(project=tmp_path).get("greet").state is ToolState.QUARANTINED


def test_state_that_others_may_change_is_refused(tmp_path: Path) -> None:
    configure(tmp_path, RUNS)
    accept(tmp_path)
    state = open_state(tmp_path)
    assert state is not None
    assert state.folder.stat().st_mode & 0o777 == 0o700
    state.folder.chmod(0o770)
    with pytest.raises(StateUnusable):
        open_keep(project=tmp_path)


def test_a_user_without_a_home_has_accepted_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(tmp_path, RUNS)
    monkeypatch.setattr("toolkeep.keep.open.home_folder", lambda: None)
    assert open_state(tmp_path) is None
    assert open_keep(project=tmp_path).get("greet").state is ToolState.QUARANTINED


def test_looking_at_an_unaccepted_project_remembers_nothing(tmp_path: Path) -> None:
    configure(tmp_path, EVERYTHING)
    open_keep(project=tmp_path)
    assert list(Path.home().iterdir()) == []
    assert [path.name for path in tmp_path.rglob("*")] == [".agent", "config.yml"]


# --- to be looked at before it is accepted --------------------------------------------------------

PROPOSAL = """\
tier: core
tools: {custom: [{name: mine, description: Mine., version: 1.0.0, run: {python: "a:b"}}]}
upstreams: {shop: {openapi: shop.json, url: "https://${PLACE:-shop}.example/"}}
agents: {ada: {capabilities: ["fs.read:./docs", "${HELD}"]}}
events: {webhook: {url: "https://events.example/", secret: "${KEY}"}}
audit: {checkpoint_file: "${FILE:-x}"}
"""


def test_a_proposal_is_read_without_its_variables_and_without_whom_it_would_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PLACE", "HELD", "KEY", "FILE"):
        monkeypatch.setenv(name, "fs.write:/secret")
    configure(tmp_path, PROPOSAL)
    proposed = read_proposed(tmp_path, open_state(tmp_path))
    assert [file.counts for file in proposed.files] == [False]
    assert proposed.upstreams["shop"].data["url"] == "https://shop.example/"
    assert [str(held) for held in proposed.agents["ada"].capabilities] == ["fs.read:./docs"]
    assert [(tool.name, tool.held_back) for tool in proposed.tools] == [("mine", "")]
    assert (proposed.event_webhook, proposed.checkpoint_file) == (None, DEFAULT_SETTINGS.checkpoint_file)
    assert settings_of(tmp_path).upstreams == {}


def test_what_was_accepted_is_no_proposal_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(tmp_path, 'upstreams: {shop: {openapi: shop.json, url: "https://${PLACE:-shop}.example/"}}')
    accept(tmp_path)
    monkeypatch.setenv("PLACE", "here")
    upstream = read_proposed(tmp_path, open_state(tmp_path)).upstreams["shop"]
    assert (upstream.data["url"], upstream.written["url"]) == (
        "https://here.example/",
        "https://${PLACE:-shop}.example/",
    )


@pytest.mark.spec("REG-5", "SBX-6")
def test_an_environment_that_appears_around_a_program_withdraws_acceptance(tmp_path: Path) -> None:
    """It would decide which folders the program is shown, and a tool that may write the project can put it there."""
    project = tmp_path / "project"
    (project / "tools" / "bin").mkdir(parents=True)
    (project / "tools" / "bin" / "run").touch()
    tool = "{name: go, description: Go., version: 1.0.0, run: {command: [./tools/bin/run]}}"
    configure(project, registry(f"custom_tools: [{tool}]"))
    accept(project)
    assert settings_of(project).files[-1].counts
    (project / "tools" / "pyvenv.cfg").touch()
    assert not settings_of(project).files[-1].counts
