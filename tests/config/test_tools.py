"""Custom tools of a configuration file: what they need, what runs them, and that a bad one spoils no other."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from tests.config.examples import SCENARIO_6, SCENARIO_7
from tests.config.projects import accept, configure, configure_home, tool_text
from toolkeep import Category, Keep, open_keep, tool
from toolkeep.calls import CheckedCall, Refusal
from toolkeep.cli.main import cli
from toolkeep.config.settings import Run
from toolkeep.errors import Code, DefinitionError, ToolkeepError
from toolkeep.tools.catalog import built_in

pytestmark = pytest.mark.spec("REG-5")

KEYS = ("tool_registry/custom_tools", "tools/custom", "tools/custom_tools")


def custom(keep: Keep) -> list[str]:
    return [tool.name for tool in keep.tools() if tool.is_custom]


def skipped(project: Path) -> list[tuple[str, ToolkeepError]]:
    """Each tool that was left out, after a person accepted the file."""
    accept(project)
    keep = open_keep(project=project)
    assert custom(keep) == []
    return [(skip.tool, skip.error) for skip in keep.start_up.skipped]


def the_problem(project: Path) -> tuple[str, str]:
    """Place with field, and fix, of the only problem of the only tool."""
    ((_, error),) = skipped(project)
    assert isinstance(error, DefinitionError)
    (problem,) = error.problems
    return problem.field, problem.fix


@pytest.mark.parametrize("key", KEYS)
def test_tools_are_read_under_each_key(key: str, tmp_path: Path) -> None:
    configure_home(tool_text(key=key))
    keep = open_keep(project=tmp_path)
    tool = keep.get("greet")
    assert (tool.provider, tool.is_custom, tool.is_built_in, tool.runner) == ("config", True, False, None)
    assert tool.definition.to_dict() == {
        "name": "greet",
        "description": "Greets a person by name.",
        "version": "1.0.0",
        "category": "custom",
        "parameters": {"type": "object", "properties": {}},
    }


def test_tools_under_all_keys_are_read_together(tmp_path: Path) -> None:
    each = [f"[{{name: {name}, description: Greets a person., version: 1.0.0}}]" for name in "abc"]
    text = "tool_registry: {{custom_tools: {}}}\ntools: {{custom: {}, custom_tools: {}}}\n".format(*each)
    configure(tmp_path, text)
    assert custom(open_keep(project=tmp_path)) == ["a", "b", "c"]


@pytest.mark.spec("DEF-4")
@pytest.mark.parametrize(
    ("line", "category"),
    [("enabled: true", Category.CUSTOM), ("category: Custom", Category.CUSTOM), ("category: FileSystem", Category.FILE_SYSTEM), ("category: web", Category.NETWORK)],
)  # fmt: skip
def test_the_category_is_custom_unless_the_file_says_otherwise(
    line: str, category: Category, tmp_path: Path
) -> None:
    configure(tmp_path, tool_text(line))
    assert open_keep(project=tmp_path).get("greet").definition.category is category


# --- version -------------------------------------------------------------------------------------

WITHOUT = "tools:\n  custom:\n    - name: greet\n      description: Greets a person by name.\n"


@pytest.mark.spec("DEF-3")
@pytest.mark.parametrize(
    ("text", "place"),
    [
        pytest.param(WITHOUT, "3:7", id="missing"),
        pytest.param(tool_text(version=""), "5:15", id="null"),
        pytest.param(tool_text(version="1.0"), "5:16", id="number"),
        pytest.param(tool_text(version="2"), "5:16", id="whole_number"),
        pytest.param(tool_text(version="true"), "5:16", id="boolean"),
        pytest.param(tool_text(version="[1, 0, 0]"), "5:16", id="list"),
    ],
)
def test_a_version_is_needed_and_is_text(text: str, place: str, tmp_path: Path) -> None:
    path = configure(tmp_path, text)
    field, fix = the_problem(tmp_path)
    assert field == f"{path}:{place} version"
    assert "'1.0.0'" in fix


@pytest.mark.spec("DEF-3")
def test_a_version_that_is_none_is_refused(tmp_path: Path) -> None:
    path = configure(tmp_path, tool_text(version="'1.0'"))
    assert the_problem(tmp_path) == (f"{path}:5:16 version", "use a version such as 1.0.0")


# --- what runs it --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "run"),
    [
        ("run: {python: 'shop.tools:greet'}", Run(kind="python", target="shop.tools:greet")),
        ("run: {command: [git, status]}", Run(kind="command", target=["git", "status"])),
        ("run: {command: [./greet]}", Run(kind="command", target=["./greet"])),
        ("run: {http: 'https://example.org/greet'}", Run(kind="http", target="https://example.org/greet")),
        (
            "run: {http: {url: 'https://example.org', method: PUT}}",
            Run(kind="http", target={"url": "https://example.org", "method": "PUT"}),
        ),
        ("run: {wasm: greet.wasm}", Run(kind="wasm", target="greet.wasm")),
        (
            "run: {wasm: {path: a.wasm, output: text, fuel: 5}}",
            Run(kind="wasm", target={"path": "a.wasm", "output": "text", "fuel": 5}),
        ),
        ("run:", None),
        ("client_executed: true", None),
    ],
)
def test_what_runs_a_tool_is_named_and_not_looked_at(line: str, run: Run | None, tmp_path: Path) -> None:
    configure(tmp_path, tool_text(line))
    accept(tmp_path)
    tool = open_keep(project=tmp_path).get("greet")
    assert (tool.runner and replace(tool.runner, code=None)) == run
    assert tool.is_enabled
    assert tool.definition.client_executed is line.startswith("client")


WASM_MEND = "write the path of a .wasm file, or an object with path, and perhaps output and fuel"


@pytest.mark.parametrize(
    ("line", "place", "fix"),
    [
        ("run: {}", "6:12 run", "keep one of them"),
        ("run: []", "6:12 run", "keep one of them"),
        ("run: greet.py", "6:12 run", "keep one of them"),
        ("run: {shell: rm -rf}", "6:12 run", "keep one of them"),
        ("run: {python: 'a:b', wasm: b}", "6:12 run", "keep one of them"),
        ("run: {Python: 'a:b'}", "6:12 run", "keep one of them"),
        ("run: {python: greet}", "6:21 run/python", "write module:function"),
        ("run: {python: ':greet'}", "6:21 run/python", "write module:function"),
        ("run: {python: 'greet:'}", "6:21 run/python", "write module:function"),
        ("run: {python: ''}", "6:21 run/python", "write module:function"),
        ("run: {python: 5}", "6:21 run/python", "write module:function"),
        ("run: {python: [a, b]}", "6:21 run/python", "write module:function"),
        ("run: {command: git status}", "6:22 run/command", "write a list: program, then arguments"),
        ("run: {command: []}", "6:22 run/command", "write a list: program, then arguments"),
        ("run: {command: [sleep, 1]}", "6:22 run/command", "write a list: program, then arguments"),
        ("run: {command: ['']}", "6:22 run/command", "write a list: program, then arguments"),
        ("run: {command: {program: git}}", "6:22 run/command", "write a list: program, then arguments"),
        ("run: {http: {}}", "6:19 run/http", "write a URL, or an object with url"),
        ("run: {http: {url: 5}}", "6:19 run/http", "write a URL, or an object with url"),
        ("run: {http: {url: ''}}", "6:19 run/http", "write a URL, or an object with url"),
        ("run: {http: [a]}", "6:19 run/http", "write a URL, or an object with url"),
        ("run: {http: ' '}", "6:19 run/http", "write a URL, or an object with url"),
        ("run: {http: 'https://{host}/'}", "6:19 run/http", "write a URL, or an object with url"),
        (
            "run: {http: {url: 'https://a.org/', body: x}}",
            "6:19 run/http",
            "write a URL, or an object with url",
        ),
        ("run: {wasm: ''}", "6:19 run/wasm", WASM_MEND),
        ("run: {wasm: }", "6:19 run/wasm", WASM_MEND),
        ("run: {wasm: [a.wasm]}", "6:19 run/wasm", WASM_MEND),
        ("run: {wasm: {path: ''}}", "6:19 run/wasm", WASM_MEND),
        ("run: {wasm: {output: text}}", "6:19 run/wasm", WASM_MEND),
        ("run: {wasm: {path: a, output: xml}}", "6:19 run/wasm", WASM_MEND),
        ("run: {wasm: {path: a, fuel: 0}}", "6:19 run/wasm", WASM_MEND),
        ("run: {wasm: {path: a, fuel: true}}", "6:19 run/wasm", WASM_MEND),
        ("run: {wasm: {path: a, network: true}}", "6:19 run/wasm", WASM_MEND),
    ],
)
def test_what_cannot_run_a_tool_is_refused_with_its_place(
    line: str, place: str, fix: str, tmp_path: Path
) -> None:
    path = configure(tmp_path, tool_text(line))
    assert the_problem(tmp_path) == (f"{path}:{place}", fix)


@pytest.mark.parametrize(
    ("method", "capability", "fixes"),
    [
        ("GET", "fs.read:./a", ["add net.read:example.org"]),
        ("POST", "net.read:example.org", ["add net.write:example.org"]),
        ("POST", "net.write:example.org", []),
        ("GET", "net.write:example.org", []),
        ("GET", "net.read:example.org", []),
    ],
)
def test_an_http_tool_that_could_reach_nothing_is_warned_about(
    method: str, capability: str, fixes: list[str], tmp_path: Path
) -> None:
    run = f"run: {{http: {{url: 'https://example.org/', method: {method}}}}}"
    configure(tmp_path, tool_text(run, f"capabilities: ['{capability}']"))
    accept(tmp_path)
    warnings = open_keep(project=tmp_path).get("greet").warnings
    assert [problem.fix for problem in warnings if problem.field == "capabilities"] == fixes


def test_a_url_in_a_variable_is_not_read_before_the_file_is_accepted(tmp_path: Path) -> None:
    configure(tmp_path, tool_text("run: {http: '${SHOP_URL:-https://example.org/}'}"))
    assert open_keep(project=tmp_path).get("greet").state.value == "quarantined"
    accept(tmp_path)
    assert open_keep(project=tmp_path).get("greet").runner.target == "https://example.org/"


def test_run_beside_client_executed_is_refused(tmp_path: Path) -> None:
    path = configure(tmp_path, tool_text("client_executed: true", "run: {python: 'a:b'}"))
    assert the_problem(tmp_path) == (f"{path}:7:12 run", "keep one of the two")


# --- a bad tool ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("nonsense: 1", "6:17 nonsense"),
        ("category: zzz", "6:17 category"),
        ("danger: zzz", "6:15 danger"),
        ("danger_level: zzz", "6:21 danger"),
        ("enabled: no", "6:16 enabled"),
        ("client_executed: 'yes'", "6:24 client_executed"),
        ("capabilities: [fs.read, fs.fly]", "6:31 capabilities/1"),
        ("aliases: [1]", "6:17 aliases/0"),
        ("constraints: {max_execution_time: 9999}", "6:41 constraints/max_execution_time"),
        ("constraints: {unknown: 1}", "6:30 constraints/unknown"),
        ("source: {kind: mcp, origin: elsewhere}", "6:15 source"),
        ("source: {kind: hand, origin: elsewhere}", "6:15 source"),
        ("parameters: {type: object, properties: {a: {type: strin}}}", "6:57 parameters/properties/a/type"),
        ("parameters: {type: object, properties: {a/b: {type: strin}}}", "6:59 parameters/properties/a~1b/type"),
    ],
)  # fmt: skip
def test_a_bad_tool_is_skipped_with_the_place_of_the_field(line: str, place: str, tmp_path: Path) -> None:
    path = configure(tmp_path, tool_text(line))
    assert the_problem(tmp_path)[0] == f"{path}:{place}"


def test_all_problems_of_a_tool_come_at_once(tmp_path: Path) -> None:
    path = configure(tmp_path, tool_text("danger: zzz", "run: {}", name="Greet!", version="one"))
    ((name, error),) = skipped(tmp_path)
    assert isinstance(error, DefinitionError)
    assert (name, error.code) == ("Greet!", Code.DEFINITION_INVALID)
    places = {problem.field.removeprefix(f"{path}:") for problem in error.problems}
    assert places == {"3:13 name", "5:16 version", "6:15 danger", "7:12 run"}


@pytest.mark.parametrize("item", ["hello", "5", "[]", "", "true", "''"])
def test_what_is_no_object_is_skipped(item: str, tmp_path: Path) -> None:
    path = configure(tmp_path, f"tools:\n  custom:\n    - {item}\n")
    ((name, error),) = skipped(tmp_path)
    assert isinstance(error, DefinitionError)
    (problem,) = error.problems
    assert (name, problem.message) == ("#1", "is no object")
    assert problem.field.startswith(f"{path}:3:")


MIXED = """\
tools:
  custom:
    - {name: first, description: Greets a person., version: 1.0.0}
    - {name: BAD, description: Greets a person., version: 1.0.0}
    - {description: Greets a person., version: 1.0.0}
    - {name: last, description: Greets a person., version: 1.0.0}
    - {name: first, description: Greets another person., version: 1.0.0}
    - {name: agent_hello_world, description: Greets a person., version: 9.0.0}
    - {name: aliased, aliases: [last], description: Greets a person., version: 1.0.0}
    - {name: first, description: Greets a person., version: 1.0.0}
"""


def test_the_others_load_and_the_skipped_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    configure(tmp_path, MIXED)
    caplog.set_level("INFO", logger="toolkeep")
    keep = open_keep(project=tmp_path)
    assert custom(keep) == ["first", "last"]
    count = len(built_in())
    assert [(skip.provider, skip.tool, skip.error.code) for skip in keep.start_up.skipped] == [
        ("project", "BAD", Code.DEFINITION_INVALID),
        ("project", "#3", Code.DEFINITION_INVALID),
        ("project", "first", Code.DUPLICATE_TOOL),
        ("project", "agent_hello_world", Code.DUPLICATE_TOOL),
        ("project", "aliased", Code.DUPLICATE_TOOL),
    ]
    (ended,) = (vars(record) for record in caplog.records if record.message == "start-up ended")
    assert (ended["tool_count"], ended["skipped_count"]) == (count + 2, 5)
    assert keep.start_up.tool_count == count + 2


def test_versions_of_a_tool_stand_beside_each_other(tmp_path: Path) -> None:
    one = "{{name: greet, description: Greets a person., version: {}}}"
    text = f"tools: {{custom: [{', '.join(one.format(v) for v in ('1.0.0', '2.0.0', '1.5.0'))}]}}"
    configure(tmp_path, text)
    versions = open_keep(project=tmp_path).versions("greet")
    assert [tool.version for tool in versions] == ["2.0.0", "1.5.0", "1.0.0"]


# --- a project's tools give way ------------------------------------------------------------------


def test_a_project_cannot_take_the_name_of_a_users_tool_that_was_skipped(tmp_path: Path) -> None:
    configure_home(tool_text("danger: zzz", name="deploy"))
    configure(tmp_path, tool_text(name="deploy", version="9.0.0"))
    keep = open_keep(project=tmp_path)
    assert custom(keep) == []
    assert [(skip.provider, skip.tool, skip.error.code) for skip in keep.start_up.skipped] == [
        ("config", "deploy", Code.DEFINITION_INVALID),
        ("project", "deploy", Code.DUPLICATE_TOOL),
    ]


@pytest.mark.parametrize("line", ["enabled: true", "run: {command: [id]}"])
def test_what_the_hosts_code_registers_takes_the_place_of_a_projects_tool(line: str, tmp_path: Path) -> None:
    configure(tmp_path, tool_text(line))
    keep = open_keep(project=tmp_path)

    @tool(version="1.0.0")
    def greet() -> str:
        """Greets a person by name."""
        return "hello"

    keep.register(greet)
    (held,) = keep.versions("greet")
    assert (held.provider, held.runner, held.is_enabled) == ("code", greet, True)


# --- tier and features ---------------------------------------------------------------------------


def many(count: int) -> str:
    one = "  - {{name: tool_{}, description: Greets a person., version: 1.0.0}}\n"
    return "tools:\n  custom:\n" + "".join(one.format(index) for index in range(count))


@pytest.mark.parametrize(
    ("tier", "given", "held"), [("core", 1, 0), ("writer_pro", 11, 10), ("Teams", 51, 50), ("enterprise", 52, 52)]
)  # fmt: skip
def test_a_tier_holds_so_many_custom_tools(tier: str, given: int, held: int, tmp_path: Path) -> None:
    configure_home(f"tier: {tier}\n{many(given)}")
    keep = open_keep(project=tmp_path)
    assert len(custom(keep)) == held
    codes = [skip.error.code for skip in keep.start_up.skipped]
    assert codes == [Code.TIER_EXCEEDED] * (given - held)
    assert "agent_hello_world" in keep


def test_the_switch_for_definitions_leaves_every_custom_tool_out(tmp_path: Path) -> None:
    configure_home(many(2))
    configure(tmp_path, f"features: {{tools: {{definition: false}}}}\n{tool_text()}")
    keep = open_keep(project=tmp_path)
    assert custom(keep) == []
    names = ["tool_0", "tool_1", "greet"]
    assert [(skip.tool, skip.error.message) for skip in keep.start_up.skipped] == [
        (name, f"custom tool '{name}' is left out: features.tools.definition is false") for name in names
    ]
    assert {skip.error.code for skip in keep.start_up.skipped} == {Code.FEATURE_CLOSED}
    assert "agent_hello_world" in keep


# --- the seed's scenarios ------------------------------------------------------------------------

HOMES = pytest.mark.parametrize("at_home", [True, False], ids=["acode_at_home", "project"])


def put(text: str, project: Path, *, at_home: bool) -> Path:
    return configure_home(text, name=".acode/config.yml") if at_home else configure(project, text)


@HOMES
def test_scenario_6_a_custom_tool_is_shown_and_validates(
    at_home: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(SCENARIO_6, tmp_path, at_home=at_home)
    monkeypatch.chdir(tmp_path)
    assert "custom_greeting" in CliRunner().invoke(cli, ["list"]).stdout
    shown = CliRunner().invoke(cli, ["show", "custom_greeting"])
    assert shown.exit_code == 0
    for line in (
        "Tool: custom_greeting",
        "Version: 1.0.0",
        "Description: Generates a personalized greeting message",
        "    Description: Name of the person to greet",
        "    Constraints: maxLength=100",
    ):
        assert line in shown.stdout.split("\n")
    passed = CliRunner().invoke(cli, ["validate", "custom_greeting", '{"name": "Alice", "style": "formal"}'])
    assert passed.exit_code == 0
    assert "Validation passed for tool 'custom_greeting'" in passed.stdout


@HOMES
def test_scenario_6_a_custom_tools_arguments_are_checked(at_home: bool, tmp_path: Path) -> None:
    put(SCENARIO_6, tmp_path, at_home=at_home)
    keep = open_keep(project=tmp_path)
    call = keep.try_validate_arguments("custom_greeting", {"name": "Alice"})
    assert isinstance(call, CheckedCall)
    assert call.arguments == {"name": "Alice", "style": "casual"}
    wrong: list[tuple[dict[str, Any], str, Code]] = [
        ({}, "/name", Code.REQUIRED_MISSING),
        ({"name": 1}, "/name", Code.WRONG_TYPE),
        ({"name": "A" * 101}, "/name", Code.CONSTRAINT),
        ({"name": "A", "style": "rude"}, "/style", Code.CONSTRAINT),
        ({"name": "A", "more": 1}, "/more", Code.CONSTRAINT),
    ]
    for arguments, path, code in wrong:
        refusal = keep.try_validate_arguments("custom_greeting", arguments)
        assert isinstance(refusal, Refusal)
        assert [(error.path, error.code) for error in refusal.errors] == [(path, code)]


@HOMES
def test_scenario_7_an_invalid_schema_is_skipped_with_its_place_and_the_valid_types(
    at_home: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = put(SCENARIO_7, tmp_path, at_home=at_home)
    caplog.set_level("INFO", logger="toolkeep")
    keep = open_keep(project=tmp_path)
    (skip,) = keep.start_up.skipped
    assert str(skip.error) == (
        "ACODE-TSR-008: tool 'broken_tool' cannot be used:\n"
        f"  - {path}:10:19 parameters/properties/value/type: "
        '"invalid_type_name" is not a type of JSON Schema '
        "(valid types: string, number, integer, boolean, array, object, null)"
    )
    assert "agent_hello_world" in keep
    logged = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert logged == ["tool skipped"]


@pytest.mark.parametrize(
    ("schema", "code"),
    [
        ('{$ref: "#/invalid/path"}', Code.SCHEMA_REFUSED),
        ("{$ref: '#/properties/a'}", Code.SCHEMA_REFUSED),
        (f"{{type: object, description: {'x' * 52_000}}}", Code.SCHEMA_REFUSED),
        ("{type: array, items: " * 25 + "{type: string}" + "}" * 25, Code.SCHEMA_REFUSED),
    ],
    ids=["lost_reference", "circle", "over_50_kb", "over_20_levels"],
)
def test_scenario_7_other_invalid_schemas_are_skipped(schema: str, code: Code, tmp_path: Path) -> None:
    configure(tmp_path, tool_text(f"parameters: {{type: object, properties: {{a: {schema}}}}}"))
    ((name, error),) = skipped(tmp_path)
    assert name == "greet"
    assert error.code is code
