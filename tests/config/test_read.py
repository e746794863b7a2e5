"""Configuration files in, settings out: every key, the project over the user, and what it changes in a keep."""

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from tests.config.examples import SEED
from tests.config.projects import NOBODY, accept, changes, configure, configure_home, settings_of, tool_text
from toolkeep import Keep, Limits, open_keep
from toolkeep.calls import Refusal
from toolkeep.config.paths import ConfigPaths, config_paths
from toolkeep.config.settings import DEFAULT_SETTINGS, AgentGrant
from toolkeep.definitions.capability import Capability
from toolkeep.definitions.vocabulary import Tier
from toolkeep.errors import Code, DefinitionError, FileUnreadable, NotAccepted
from toolkeep.keep.open import project_folder

pytestmark = pytest.mark.spec("REG-5")


# --- every key -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["", "\n\n", "# nothing yet\n", "---\n", "--- # nothing\n...\n", "{}\n", "null\n", "\ufeff"]
)
def test_a_file_that_says_nothing_changes_nothing(text: str, tmp_path: Path) -> None:
    configure(tmp_path, text)
    settings = settings_of(tmp_path)
    assert changes(settings) == {}
    assert [(file.counts, file.effects) for file in settings.files] == [(True, ())]


def test_no_file_is_no_settings(tmp_path: Path) -> None:
    assert settings_of(tmp_path) is DEFAULT_SETTINGS


def test_the_seeds_own_example_is_read() -> None:
    configure_home(SEED)
    settings = settings_of(Path("/nowhere"))
    assert changes(settings) == {"limits": Limits(schema_bytes=102400)}
    assert [tool.name for tool in settings.tools] == ["my_custom_tool"]


WITH_DEFAULTS = AgentGrant(
    capabilities=(Capability("fs.read", "."), Capability("fs.write", ".")),
    permissions=("tool.filesystem.read", "tool.knowledge.read", "tool.vcs.read", "tool.filesystem.write"),
)
ADA = AgentGrant(
    description="Reads", capabilities=(Capability("fs.read", "./docs"),), permissions=("tool.api.call",)
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tier: core", {"tier": Tier.CORE}),
        ("tier: WriterPro", {"tier": Tier.WRITER_PRO}),
        ("tier: writer_pro", {"tier": Tier.WRITER_PRO}),
        ("tier: Teams", {"tier": Tier.TEAMS}),
        ("features: {tools: {definition: false}}", {"allows_definitions": False}),
        ("features: {tools: {definition: true}}", {}),
        ("tool_registry: {strict_mode: true, cache_compiled_schemas: true}", {}),
        ("tool_registry: {max_schema_size: 7}", {"limits": Limits(schema_bytes=7)}),
        ("tool_registry: {max_schema_depth: 7}", {"limits": Limits(schema_depth=7)}),
        ("tool_registry: {max_argument_size: 7}", {"limits": Limits(argument_bytes=7)}),
        ("tool_registry: {max_argument_depth: 7}", {"limits": Limits(argument_depth=7)}),
        ("tool_registry: {max_fanout: 7}", {"limits": Limits(fanout=7)}),
        ("tool_registry: {max_work: 7}", {"limits": Limits(work=7)}),
        ("tool_registry: {max_errors: 7}", {"limits": Limits(errors=7)}),
        ("tool_registry: {max_errors: 7.0}", {"limits": Limits(errors=7)}),
        ("tool_registry: {max_errors: 0x7}", {"limits": Limits(errors=7)}),
        ("tool_registry: {pattern_timeout_ms: 100}", {}),
        ("tool_registry: {validation_failure_log_level: debug}", {"validation_failure_level": logging.DEBUG}),
        ("tool_registry: {validation_failure_log_level: info}", {"validation_failure_level": logging.INFO}),
        ("tool_registry: {validation_failure_log_level: warning}", {}),
        ("tool_registry: {validation_failure_log_level: error}", {"validation_failure_level": logging.ERROR}),
        ("tool_registry: {include_actual_values: false}", {"include_actual_values": False}),
        ("tool_registry: {include_actual_values: true}", {}),
        ("tool_registry: {providers: [acme, beta, acme]}", {"providers": ("acme", "beta")}),
        ("tool_registry: {custom_tools: []}", {}),
        ("tools: {custom: [], custom_tools: []}", {}),
        ("permissions: [mail, print]", {"permissions": ("mail", "print")}),
        ("agents: {ada: {}}", {"agents": {"ada": AgentGrant()}}),
        (
            "agents: {ada: {description: Reads, capabilities: ['fs.read:./docs'], permissions: [tool.api.call]}}",
            {"agents": {"ada": ADA}},
        ),
        (
            "agents: {ada: {inherit: defaults, capabilities: ['fs.write:.'], permissions: [tool.filesystem.write]}}",
            {"agents": {"ada": WITH_DEFAULTS}},
        ),
        ("approvals: {}", {}),
        ("approvals: {wait: 30}", {"approval_wait_s": 30.0}),
        ("approvals: {wait: 0.5}", {"approval_wait_s": 0.5}),
        ("approvals: {wait: 0}", {}),
        ("approvals: {paranoid: true}", {"is_paranoid": True}),
        ("approvals: {paranoid: false}", {}),
        ("policies: []", {}),
    ],
)  # fmt: skip
def test_each_key_is_read_to_its_setting(text: str, expected: dict[str, Any], tmp_path: Path) -> None:
    configure_home(text)
    assert changes(settings_of(tmp_path)) == expected


@pytest.mark.parametrize(("user", "project", "wait_s"), [(30, 5, 5.0), (30, 0, 0.0), (0, 30, 30.0)])
def test_the_projects_wait_goes_over_the_users(
    user: int, project: int, wait_s: float, tmp_path: Path
) -> None:
    configure_home(f"approvals: {{wait: {user}}}")
    configure(tmp_path, f"approvals: {{wait: {project}}}")
    assert settings_of(tmp_path).approval_wait_s == wait_s


def test_disabled_tools_under_both_keys_name_their_place(tmp_path: Path) -> None:
    text = "disabled_tools:\n  - read_file\n  - grep@1.0.0\ntool_registry:\n  disabled_tools: [edit]\n"
    path = configure_home(text)
    assert settings_of(tmp_path).disabled == {
        "read_file": f"disabled in {path}:2:5",
        "grep@1.0.0": f"disabled in {path}:3:5",
        "edit": f"disabled in {path}:5:20",
    }


@pytest.mark.spec("REG-1")
def test_what_is_disabled_and_no_tool_is_called_is_named_with_its_place(tmp_path: Path) -> None:
    user = configure_home("disabled_tools: [agent_hello_world@9.0.0, greet]\n")
    path = configure(
        tmp_path, f"disabled_tools: [agent_hello, greeting@1.0.0]\n{tool_text('aliases: [greeting]')}"
    )
    accept(tmp_path)
    keep = open_keep(project=tmp_path)
    assert keep.start_up.unmatched == (
        ("agent_hello_world@9.0.0", f"disabled in {user}:1:18"),
        ("agent_hello", f"disabled in {path}:1:18"),
    )
    assert keep.get("greet").why == f"disabled in {path}:1:31"


def test_a_file_through_aliases_is_read_as_if_written_out(tmp_path: Path) -> None:
    configure_home("agents:\n  a: &a {capabilities: ['fs.read:.']}\n  b: *a\n")
    agents = settings_of(tmp_path).agents
    assert agents["a"] == agents["b"] == AgentGrant(capabilities=(Capability("fs.read", "."),))


# --- the project over the user -------------------------------------------------------------------

BOTH = [
    pytest.param("tier: teams", "tier: core", {"tier": Tier.CORE}, id="tier"),
    pytest.param("tier: core", "{}", {"tier": Tier.CORE}, id="tier_of_the_user_alone"),
    pytest.param(
        "tool_registry: {max_work: 9, max_errors: 8}",
        "tool_registry: {max_work: 5}",
        {"limits": Limits(work=5, errors=8)},
        id="limits_one_by_one",
    ),
    pytest.param(
        "tool_registry: {include_actual_values: true}",
        "tool_registry: {include_actual_values: false}",
        {"include_actual_values": False},
        id="values",
    ),
    pytest.param(
        "tool_registry: {validation_failure_log_level: info}",
        "tool_registry: {validation_failure_log_level: error}",
        {"validation_failure_level": logging.ERROR},
        id="log_level",
    ),
    pytest.param(
        "features: {tools: {definition: true}}",
        "features: {tools: {definition: false}}",
        {"allows_definitions": False},
        id="definitions",
    ),
    pytest.param(
        "tool_registry: {providers: [acme, beta]}",
        "tool_registry: {providers: [beta, gamma]}",
        {"providers": ("acme", "beta", "gamma")},
        id="providers_joined",
    ),
    pytest.param("permissions: [a, b]", "permissions: [b, c]", {"permissions": ("a", "b", "c")}, id="permissions_joined"),
    pytest.param(
        "permissions: [a, b, c]\nagents: {ada: {permissions: [a]}, bob: {permissions: [b]}}",
        "agents: {bob: {description: Bob, permissions: [c]}, eve: {}}",
        {
            "permissions": ("a", "b", "c"),
            "agents": {
                "ada": AgentGrant(permissions=("a",)),
                "bob": AgentGrant(description="Bob", permissions=("c",)),
                "eve": AgentGrant(),
            }
        },
        id="agents_by_name",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("user", "project", "expected"), BOTH)
def test_the_project_goes_over_the_user(
    user: str, project: str, expected: dict[str, Any], tmp_path: Path
) -> None:
    configure_home(user)
    configure(tmp_path, project)
    accept(tmp_path)
    assert changes(settings_of(tmp_path)) == expected


def test_disabled_tools_of_both_are_joined(tmp_path: Path) -> None:
    user = configure_home("disabled_tools: [a, b]")
    project = configure(tmp_path, "disabled_tools: [b, c]")
    assert settings_of(tmp_path).disabled == {
        "a": f"disabled in {user}:1:18",
        "b": f"disabled in {project}:1:18",
        "c": f"disabled in {project}:1:21",
    }


def test_tools_of_both_are_offered(tmp_path: Path) -> None:
    configure_home(tool_text(name="mine"))
    configure(tmp_path, tool_text(name="ours"))
    assert [tool.name for tool in open_keep(project=tmp_path).tools(category="custom")] == ["mine", "ours"]


def test_the_users_agent_file_goes_over_the_acode_file(tmp_path: Path) -> None:
    configure_home("tier: core\npermissions: [a]\ntool_registry: {max_errors: 3}", name=".acode/config.yml")
    configure_home("tier: teams\npermissions: [b]")
    settings = settings_of(tmp_path)
    expected = {"tier": Tier.TEAMS, "permissions": ("a", "b"), "limits": Limits(errors=3)}
    assert changes(settings) == expected
    assert [Path(file.path).parent.name for file in settings.files] == [".acode", ".agent"]


def test_acode_is_read_at_home_only(tmp_path: Path) -> None:
    configure(tmp_path, "tier: core", name=".acode/config.yml")
    assert settings_of(tmp_path) is DEFAULT_SETTINGS


# --- which folder --------------------------------------------------------------------------------


def test_the_project_is_found_from_a_folder_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(tmp_path, tool_text())
    below = tmp_path / "src" / "deep"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert "greet" in open_keep()
    assert project_folder() == tmp_path


def test_the_nearest_configuration_is_the_projects_once_a_person_accepted_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(tmp_path, tool_text(name="outer"))
    inner = tmp_path / "inner"
    configure(inner, tool_text(name="inner"))
    (inner / "deep").mkdir()
    monkeypatch.chdir(inner / "deep")
    with pytest.raises(NotAccepted) as raised:
        open_keep()
    assert raised.value.message == (
        f"{inner}/.agent/config.yml is inside the project of {tmp_path}/.agent/config.yml, but is not accepted "
        "as a project of its own"
    )
    assert raised.value.hint == (
        f"run: toolkeep accept --project {inner}; or use the project around it: --project {tmp_path}"
    )
    accept(inner)
    assert [tool.name for tool in open_keep(built_in=False).tools()] == ["inner"]
    configure(inner, "disabled_tools: []\n")
    with pytest.raises(NotAccepted):
        project_folder()


@pytest.mark.parametrize("text", ["disabled_tools: []\n", "policies: []\n", "tier: core\n", ""])
def test_a_folder_that_is_named_is_the_project_also_inside_another(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(tmp_path, "disabled_tools: [read_file]\n")
    configure(tmp_path / "inner", text)
    monkeypatch.chdir(tmp_path / "inner")
    with pytest.raises(NotAccepted):
        project_folder()
    assert [project_folder(named) for named in (tmp_path, ".")] == [tmp_path, tmp_path / "inner"]
    assert open_keep(project=tmp_path / "inner").get("read_file").is_enabled


def test_the_users_own_file_is_no_project_around_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure_home("tier: core")
    configure(Path.home() / "work", "disabled_tools: []\n")
    monkeypatch.chdir(Path.home() / "work")
    assert project_folder() == Path.home() / "work"


def test_every_project_around_one_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    for place in places:
        configure(place, "disabled_tools: []\n")
    monkeypatch.chdir(places[-1])
    with pytest.raises(NotAccepted) as raised:
        project_folder()
    assert raised.value.hint.endswith(f": --project {places[1]} or --project {places[0]}")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_another_user_put_above_is_no_project_around_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = configure(tmp_path, "disabled_tools: []\n")
    configure(tmp_path / "inner", "disabled_tools: []\n")
    os.chown(planted, NOBODY, NOBODY)
    monkeypatch.chdir(tmp_path / "inner")
    assert project_folder() == tmp_path / "inner"


def test_a_folder_that_is_named_is_not_searched_from(tmp_path: Path) -> None:
    configure(tmp_path, tool_text())
    below = tmp_path / "below"
    below.mkdir()
    assert len(open_keep(project=below, built_in=False)) == 0


@pytest.mark.parametrize("is_link", [False, True], ids=["home", "home_behind_a_link"])
def test_nothing_is_found_beyond_home(is_link: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(tmp_path, tool_text(name="planted"))
    work = tmp_path / "home" / "work"
    work.mkdir(parents=True)
    if is_link:
        (tmp_path / "link").symlink_to(tmp_path / "home")
    monkeypatch.setenv("HOME", str(tmp_path / ("link" if is_link else "home")))
    monkeypatch.chdir(work)
    assert project_folder() == work
    assert "planted" not in open_keep()


def test_home_as_project_has_only_the_users_files(tmp_path: Path) -> None:
    home = Path.home()
    user = (home / ".acode" / "config.yml", home / ".agent" / "config.yml")
    assert config_paths(home, home) == ConfigPaths(user, None)
    link = tmp_path / "link"
    link.symlink_to(home)
    assert config_paths(link, home) == ConfigPaths(user, None)


@pytest.mark.parametrize("above", [0, 1, 2], ids=["home", "folder_above", "folder_above_that"])
def test_a_keep_opens_at_home_and_above(above: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home" / "ada"
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    configure_home(tool_text("client_executed: true"))
    keep = open_keep(project=(home, *home.parents)[above])
    assert keep.get("greet").is_enabled
    assert keep.start_up.held_back == ()


def test_a_file_in_the_place_of_the_agent_folder_is_a_project_without_configuration(tmp_path: Path) -> None:
    (tmp_path / ".agent").write_text("no folder")
    configure_home("tier: core")
    assert changes(settings_of(tmp_path)) == {"tier": Tier.CORE}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("given", [".", ".agent", ".agent/config.yml"])
def test_a_configuration_above_that_another_user_put_there_is_not_used(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(tmp_path, tool_text(name="outer"))
    configure(tmp_path / "shared", tool_text(name="planted"))
    accept(tmp_path / "shared")
    work = tmp_path / "shared" / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    assert project_folder() == tmp_path / "shared"
    os.chown(tmp_path / "shared" / given, NOBODY, NOBODY)
    assert project_folder() == tmp_path
    assert ("outer" in open_keep(), "planted" in open_keep()) == (True, False)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_link_that_another_user_put_above_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(tmp_path / "mine", tool_text(name="mine"))
    work = tmp_path / "shared" / "work"
    work.mkdir(parents=True)
    link = tmp_path / "shared" / ".agent"
    link.symlink_to(tmp_path / "mine" / ".agent")
    monkeypatch.chdir(work)
    assert project_folder() == tmp_path / "shared"
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    assert project_folder() == work


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_working_folder_itself_may_be_anybodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = configure(tmp_path / "clone", tool_text())
    for given in (path, path.parent, path.parent.parent):
        os.chown(given, NOBODY, NOBODY)
    monkeypatch.chdir(tmp_path / "clone")
    assert project_folder() == tmp_path / "clone"


@pytest.mark.parametrize("below", ["", "home"])
def test_a_home_behind_a_link_that_leads_in_a_circle_is_named(
    below: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    monkeypatch.setenv("HOME", str(loop / below))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileUnreadable) as raised:
        open_keep()
    path = loop / below / ".acode" / "config.yml"
    assert str(raised.value) == f"ACODE-TSR-016: {path}: Too many levels of symbolic links"


@pytest.mark.parametrize("project", [None, ".", "below"])
def test_a_working_folder_that_is_gone_is_named(
    project: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(FileUnreadable) as raised:
        open_keep(project=project)
    assert str(raised.value) == "ACODE-TSR-016: .: the working folder is gone; change to another"


def test_a_project_whose_name_is_not_utf_8_is_one_like_any_other(tmp_path: Path) -> None:
    project = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    configure(project, tool_text("run: {command: [id]}"))
    assert not open_keep(project=project).get("greet").is_enabled
    accept(project)
    keep = open_keep(project=project)
    assert keep.get("greet").is_enabled
    keep.disable("greet", remember=True)
    assert not open_keep(project=project).get("greet").is_enabled


# --- whose file ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [".acode/config.yml", ".agent/config.yml"])
def test_a_user_file_that_everybody_may_write_is_refused(name: str, tmp_path: Path) -> None:
    path = configure_home("tier: core", name=name)
    path.chmod(0o646)
    with pytest.raises(FileUnreadable) as raised:
        open_keep(project=tmp_path)
    fix = f"is writable by everybody; run: chmod o-w {path}"
    assert str(raised.value) == f"ACODE-TSR-016: {path}: {fix}"
    path.chmod(0o644)
    assert settings_of(tmp_path).tier is Tier.CORE


def test_a_link_to_a_file_that_everybody_may_write_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "shared.yml"
    target.write_text("tier: core")
    target.chmod(0o666)
    path = Path.home() / ".agent" / "config.yml"
    path.parent.mkdir()
    path.symlink_to(target)
    with pytest.raises(FileUnreadable, match="is writable by everybody"):
        open_keep(project=tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_user_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    path = configure_home("tier: core")
    os.chown(path, NOBODY, NOBODY)
    with pytest.raises(FileUnreadable) as raised:
        open_keep(project=tmp_path)
    assert str(raised.value) == f"ACODE-TSR-016: {path}: belongs to another user; change its owner to you"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_owner_is_that_of_the_file_that_was_read_not_of_one_put_there_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = configure_home("tier: core")
    os.chown(path, NOBODY, NOBODY)
    really_open = os.open

    def open_and_swap(opened: Any, *arguments: Any, **options: Any) -> int:
        descriptor = really_open(opened, *arguments, **options)
        if Path(opened) == path and path.stat().st_uid == NOBODY:
            path.unlink()
            path.touch()
        return descriptor

    monkeypatch.setattr(os, "open", open_and_swap)
    with pytest.raises(FileUnreadable, match="belongs to another user"):
        settings_of(tmp_path)
    assert path.stat().st_uid == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_project_file_may_be_anybodys(tmp_path: Path) -> None:
    path = configure(tmp_path, "tier: core")
    path.chmod(0o666)
    os.chown(path, NOBODY, NOBODY)
    assert settings_of(tmp_path).tier is Tier.CORE


# --- what it changes -----------------------------------------------------------------------------


def definition(parameters: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "probe",
        "description": "A tool that is tried out.",
        "version": "1.0.0",
        "parameters": {"type": "object", **parameters},
    }


WORD = {"type": "string", "maxLength": 100, "description": "A word."}
WORDS = {"properties": {"words": {"type": "array", "items": WORD, "maxItems": 99, "description": "Words."}}}
FIVE = {"properties": dict.fromkeys("abcde", WORD)}
NEST = {
    "properties": {"tree": {"type": "object", "description": "A tree.", "properties": {"leaf": WORDS["properties"]["words"]}}}
}  # fmt: skip


def keep_with(limit: str, project: Path) -> Keep:
    configure(project, f"tool_registry: {{{limit}}}")
    return open_keep(project=project)


@pytest.mark.parametrize(
    ("limit", "just_right", "too_little", "parameters"),
    [
        ("max_schema_size", 400, 50, WORDS),
        ("max_schema_depth", 6, 2, NEST),
    ],
)
def test_a_limit_on_schemas_decides_what_is_registered(
    limit: str, just_right: int, too_little: int, parameters: dict[str, Any], tmp_path: Path
) -> None:
    keep_with(f"{limit}: {just_right}", tmp_path).register(definition(parameters))
    with pytest.raises(DefinitionError) as raised:
        keep_with(f"{limit}: {too_little}", tmp_path).register(definition(parameters))
    assert raised.value.code is Code.SCHEMA_REFUSED


def test_max_fanout_decides_what_is_registered(tmp_path: Path) -> None:
    either = {"properties": {"a": {"anyOf": [WORD, {**WORD, "maxLength": 9}], "description": "Either."}}}
    keep_with("max_fanout: 200", tmp_path).register(definition(either))
    with pytest.raises(DefinitionError) as raised:
        keep_with("max_fanout: 1", tmp_path).register(definition(either))
    assert raised.value.code is Code.SCHEMA_REFUSED


@pytest.mark.parametrize(
    ("limit", "parameters", "arguments", "code"),
    [
        ("max_argument_size: 20", WORDS, '{"words": ["a", "b", "c"]}', Code.ARGUMENTS_TOO_BIG),
        ("max_argument_depth: 2", NEST, '{"tree": {"leaf": ["a"]}}', Code.ARGUMENTS_TOO_BIG),
        ("max_work: 5", WORDS, '{"words": ["a", "b", "c", "d", "e", "f"]}', Code.WORK_EXCEEDED),
    ],
)
def test_a_limit_on_arguments_decides_which_calls_are_refused(
    limit: str, parameters: dict[str, Any], arguments: str, code: Code, tmp_path: Path
) -> None:
    free, bound = open_keep(project=tmp_path), keep_with(limit, tmp_path)
    for keep in (free, bound):
        keep.register(definition(parameters))
    assert free.try_validate_arguments("probe", arguments).success
    refusal = bound.try_validate_arguments("probe", arguments)
    assert isinstance(refusal, Refusal)
    assert refusal.code is code


@pytest.mark.parametrize(
    ("limit", "count"), [("max_errors: 2", 2), ("max_errors: 4", 4), ("max_errors: 9", 5)]
)
def test_max_errors_cuts_a_refusal(limit: str, count: int, tmp_path: Path) -> None:
    keep = keep_with(limit, tmp_path)
    keep.register(definition(FIVE))
    arguments = dict.fromkeys("abcde", 1)
    assert len(keep.try_validate_arguments("probe", arguments).errors) == count


def test_limits_in_code_go_over_the_configured_ones(tmp_path: Path) -> None:
    configure(tmp_path, "tool_registry: {max_argument_size: 5}")
    keep = open_keep(project=tmp_path, limits=Limits(argument_bytes=1000))
    keep.register(definition(FIVE))
    assert keep.try_validate_arguments("probe", {"a": "some more than five bytes"}).success


def test_pattern_timeout_ms_has_no_effect(tmp_path: Path) -> None:
    keep = keep_with("pattern_timeout_ms: 1", tmp_path)
    word = {**WORD, "maxLength": 8000, "pattern": "^(a+)+$"}
    keep.register(definition({"properties": {"a": word}}))
    assert keep.try_validate_arguments("probe", {"a": "a" * 5000}).success
    assert changes(settings_of(tmp_path)) == {}


@pytest.mark.parametrize(
    ("configured", "asked", "is_shown"),
    [("true", True, True), ("false", True, False), ("true", False, False), ("false", False, False)],
)
def test_values_are_shown_only_if_both_code_and_configuration_say_so(
    configured: str, asked: bool, is_shown: bool, tmp_path: Path
) -> None:
    configure(tmp_path, f"tool_registry: {{include_actual_values: {configured}}}")
    keep = open_keep(project=tmp_path, include_actual_values=asked)
    keep.register(definition({"properties": {"n": {"type": "integer", "description": "A number."}}}))
    refusal = keep.try_validate_arguments("probe", {"n": "hunter2"})
    assert isinstance(refusal, Refusal)
    assert ("hunter2" in str(refusal.to_dict())) is is_shown


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_refused_calls_are_logged_at_the_configured_level(
    level: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    configure_home(f"tool_registry: {{validation_failure_log_level: {level}}}")
    keep = open_keep(project=tmp_path)
    caplog.set_level(logging.DEBUG, logger="toolkeep")
    assert not keep.try_validate_arguments("agent_hello_world", {"name": 1}).success
    failed = [record for record in caplog.records if record.message == "validation failed"]
    assert [record.levelname for record in failed] == [level.upper()]


def test_a_disabled_tool_stays_disabled(tmp_path: Path) -> None:
    path = configure(tmp_path, "disabled_tools: [Agent_Hello_World]")
    keep = open_keep(project=tmp_path)
    tool = keep.get("agent_hello_world")
    assert (tool.is_enabled, tool.why) == (False, f"disabled in {path}:1:18")
    refusal = keep.try_validate_arguments("agent_hello_world", {"name": "Ada"})
    assert [error.code for error in refusal.errors] == [Code.TOOL_DISABLED]
