"""A bad configuration file stops the start with one clear error that names its place; nothing is half-loaded."""

import contextlib
import logging
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.config.bad import AGAINST_A_RULE, INVALID, TOO_LARGE, UNREADABLE, Bad
from tests.config.projects import (
    accept,
    configure,
    configure_home,
    never_waits,
    settings_of,
    tool_text,
    without_root,
)
from toolkeep import open_keep
from toolkeep.errors import ConfigurationInvalid, FileUnreadable, ToolkeepError
from toolkeep.limits import CUSTOM_TOOLS

pytestmark = pytest.mark.spec("REG-5")

SAID = (*INVALID, *AGAINST_A_RULE)
SOME = (*UNREADABLE[:2], *INVALID[:4])


def refusal_of(project: Path) -> ToolkeepError:
    """The one error, and nothing else: no provider was asked, nothing was remembered."""
    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("toolkeep")
    logger.addHandler(handler)
    level, logger.level = logger.level, logging.DEBUG
    try:
        with pytest.raises(ToolkeepError) as raised:
            open_keep(project=project)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    assert heard == []
    assert not (Path.home() / ".local").exists()
    return raised.value


def ids(table: tuple[Bad, ...]) -> list[str]:
    return [bad.name for bad in table]


@pytest.mark.parametrize("bad", UNREADABLE, ids=ids(UNREADABLE))
def test_a_file_that_cannot_be_read_is_refused_with_its_place(bad: Bad, tmp_path: Path) -> None:
    path = configure(tmp_path, bad.text)
    error = refusal_of(tmp_path)
    assert type(error) is FileUnreadable
    assert (error.path, f"{error.line}:{error.column}") == (str(path), bad.place)
    assert str(error).startswith(f"ACODE-TSR-016: {path}:{bad.place}: ")
    assert bad.word in str(error)


@pytest.mark.parametrize("bad", SAID, ids=ids(SAID))
def test_a_file_that_says_what_cannot_be_is_refused_with_its_place(bad: Bad, tmp_path: Path) -> None:
    path = configure(tmp_path, bad.text)
    error = refusal_of(tmp_path)
    assert type(error) is ConfigurationInvalid
    (fault,) = error.faults
    assert fault.startswith(f"{path}:{bad.place}: ")
    assert bad.word in fault
    assert str(error) == f"ACODE-TSR-021: {fault}"


@pytest.mark.parametrize("bad", SOME, ids=ids(SOME))
def test_the_users_own_file_is_refused_in_the_same_words(bad: Bad, tmp_path: Path) -> None:
    path = configure_home(bad.text)
    error = refusal_of(tmp_path)
    assert f"{path}:{bad.place}: " in str(error)
    assert bad.word in str(error)


def test_a_bad_project_file_is_refused_though_the_users_is_good(tmp_path: Path) -> None:
    configure_home(tool_text())
    configure(tmp_path, "tier: gold\n")
    assert type(refusal_of(tmp_path)) is ConfigurationInvalid


def test_several_faults_come_together_in_one_error(tmp_path: Path) -> None:
    text = "tier: gold\nzzzz: 1\nagents: []\ntool_registry:\n  max_work: 0\n  providers: ['']\n"
    path = configure(tmp_path, text)
    error = refusal_of(tmp_path)
    assert type(error) is ConfigurationInvalid
    places = sorted(fault.removeprefix(f"{path}:").split(": ")[0] for fault in error.faults)
    assert places == ["1:1", "2:1", "3:1", "5:3", "6:15"]
    assert str(error) == "ACODE-TSR-021: 5 faults:" + "".join(f"\n  - {fault}" for fault in error.faults)


def test_both_switches_that_cannot_be_off_come_together(tmp_path: Path) -> None:
    path = configure(tmp_path, "tool_registry:\n  strict_mode: false\n  cache_compiled_schemas: false\n")
    error = refusal_of(tmp_path)
    assert type(error) is ConfigurationInvalid
    assert error.faults == (
        f"{path}:2:3: strict_mode cannot be false; remove the line",
        f"{path}:3:3: cache_compiled_schemas cannot be false; remove the line",
    )


def test_one_mistake_with_a_variable_is_one_fault(tmp_path: Path) -> None:
    path = configure(tmp_path, 'tier: "${"\n')
    error = refusal_of(tmp_path)
    assert type(error) is ConfigurationInvalid
    fix = "write ${NAME} or ${NAME:-default}, or $${ for the text itself"
    assert error.faults == (f"{path}:1:7: '${{' does not start a variable; {fix}",)


def test_a_value_full_of_mistakes_with_variables_is_one_fault(tmp_path: Path) -> None:
    path = configure(tmp_path, f"permissions: [mail, '{'${' * 10_000}']\n")
    error = refusal_of(tmp_path)
    assert type(error) is ConfigurationInvalid
    (fault,) = error.faults
    assert fault.startswith(f"{path}:1:21: '${{' does not start a variable; ")


def test_of_many_mistakes_with_variables_an_error_holds_fifty(tmp_path: Path) -> None:
    configure(tmp_path, "permissions:\n" + "  - '${'\n" * 10_000)
    error = refusal_of(tmp_path)
    assert type(error) is ConfigurationInvalid
    assert len(error.faults) == 50
    assert len(str(error).split("\n")) == 51


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"agents: {{ada: {{capabilities: [{', '.join(['nope'] * 10_000)}]}}}}\n", id="capabilities"),
        pytest.param("".join(f"unknown_{number}: 1\n" for number in range(10_000)), id="keys"),
        pytest.param(f"permissions: [{', '.join(['1'] * 10_000)}]\n", id="permissions"),
    ],
)  # fmt: skip
def test_of_many_other_faults_an_error_holds_fifty_too(text: str, tmp_path: Path) -> None:
    configure(tmp_path, text)
    error = refusal_of(tmp_path)
    assert type(error) is ConfigurationInvalid
    assert len(error.faults) <= 51  # the last may say that there are more
    assert len(str(error).split("\n")) <= 52


def test_an_error_says_how_many_faults_it_does_not_list(tmp_path: Path) -> None:
    configure(tmp_path, "tier: gold\nzzzz: 1\npermissions:\n" + "  - '${'\n" * 60)
    error = refusal_of(tmp_path)
    assert type(error) is ConfigurationInvalid
    head, *listed, last = str(error).split("\n")
    assert (head, len(listed), last) == ("ACODE-TSR-021: 52 faults:", 50, "  - and 2 more")


@pytest.mark.parametrize("key", ["tool_registry/custom_tools", "tools/custom", "tools/custom_tools"])
def test_a_file_holds_only_so_many_tools(key: str, tmp_path: Path) -> None:
    section, inside = key.split("/")
    path = configure(tmp_path, f"{section}:\n  {inside}: [{', '.join(['x'] * (CUSTOM_TOOLS + 1))}]\n")
    error = refusal_of(tmp_path)
    assert type(error) is ConfigurationInvalid
    assert error.faults == (f"{path}:2:3: has more than {CUSTOM_TOOLS} tools; split it",)
    configure(tmp_path, f"{section}:\n  {inside}: [{', '.join(['x'] * CUSTOM_TOOLS)}]\n")
    assert len(settings_of(tmp_path).tools) == CUSTOM_TOOLS


def test_the_error_speaks_of_a_file_and_not_of_arguments(tmp_path: Path) -> None:
    configure(tmp_path, "- tier\n")
    assert "arguments" not in str(refusal_of(tmp_path))


def test_an_unset_variable_is_named_with_its_place(tmp_path: Path) -> None:
    path = configure(tmp_path, "permissions:\n  - mail\n  - ${TOOLKEEP_UNSET}\ntier: ${TOOLKEEP_UNSET}\n")
    accept(tmp_path)
    with pytest.raises(ConfigurationInvalid) as raised:
        open_keep(project=tmp_path)
    fix = "the variable TOOLKEEP_UNSET is not set; set it, or write ${TOOLKEEP_UNSET:-default}"
    assert raised.value.faults == (f"{path}:3:5: {fix}", f"{path}:4:7: {fix}")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = configure(tmp_path, TOO_LARGE.text)
    error = refusal_of(tmp_path)
    assert type(error) is FileUnreadable
    assert str(error) == f"ACODE-TSR-016: {path}: {TOO_LARGE.word}"


# --- what is no file -----------------------------------------------------------------------------


def bind_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        before = Path.cwd()
        os.chdir(path.parent)  # a socket's path is short
        try:
            bound.bind(path.name)
        finally:
            os.chdir(before)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        pytest.param(lambda path: path.mkdir(), "Is a directory", id="folder"),
        pytest.param(os.mkfifo, "is not a regular file", id="pipe"),
        pytest.param(lambda path: path.symlink_to("/dev/zero"), "is not a regular file", id="endless_device"),
        pytest.param(lambda path: path.symlink_to("/dev/null"), "is not a regular file", id="empty_device"),
        pytest.param(bind_socket, "No such device or address", id="socket"),
        pytest.param(lambda path: path.symlink_to(path), "Too many levels of symbolic links", id="loop"),
        pytest.param(lambda path: path.symlink_to("gone.yml"), "is a dangling symlink", id="dangling"),
    ],
)
def test_what_is_no_file_is_refused_and_never_waited_for(
    make: Callable[[Path], None], reason: str, tmp_path: Path
) -> None:
    path = tmp_path / ".agent" / "config.yml"
    path.parent.mkdir()
    make(path)
    with never_waits():
        error = refusal_of(tmp_path)
    assert type(error) is FileUnreadable
    assert str(error) == f"ACODE-TSR-016: {path}: {reason}"


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that everybody can reach; those of pytest are its owner's alone."""
    with tempfile.TemporaryDirectory(prefix="toolkeep-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize("locked", [".agent", ".agent/config.yml"])
def test_a_file_that_may_not_be_read_is_refused(
    locked: str, reachable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = reachable / "project"
    monkeypatch.setenv("HOME", str(reachable))
    path = configure(project, "tier: core\n")
    assert settings_of(project).tier == "core"  # and everything that reading needs is loaded
    (project / locked).chmod(0)
    with without_root(), pytest.raises(FileUnreadable) as raised:
        open_keep(project=project)
    assert str(raised.value) == f"ACODE-TSR-016: {path}: Permission denied"


# --- a file runs nothing -------------------------------------------------------------------------

CALLS = (
    "tier: !!python/object/apply:os.mkdir [{0}]\n",
    "tier: !!python/object/apply:os.system ['mkdir {0}']\n",
    "tier: !!python/object/apply:subprocess.check_call [[mkdir, {0}]]\n",
    "tier: !!python/object/new:dict {{args: [], state: !!python/object/apply:os.mkdir [{0}]}}\n",
    "agents:\n  ada: !!python/object/apply:os.makedirs {{kwds: {{name: {0}}}}}\n",
    "tools:\n  custom:\n    - run: {{python: !!python/object/apply:os.mkdir [{0}]}}\n",
)


@pytest.mark.parametrize("text", CALLS)
def test_a_tag_that_calls_python_calls_nothing(text: str, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    configure(tmp_path, text.format(marker))
    error = refusal_of(tmp_path)
    assert type(error) is FileUnreadable
    assert "the tag !!python/object/" in str(error)
    assert not marker.exists()


@pytest.mark.parametrize("text", CALLS)
def test_a_reader_that_trusts_tags_would_call_it(text: str, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    with contextlib.suppress(yaml.YAMLError, TypeError):
        yaml.load(text.format(marker), Loader=yaml.UnsafeLoader)  # noqa: S506 -- shows the attack
    assert marker.exists()


def test_a_webhook_that_only_looks_like_this_machine_is_refused(tmp_path: Path) -> None:
    path = configure(tmp_path, "audit:\n  checkpoint_webhook: http://127.0.0.1:80@example.org/\n")
    with pytest.raises(ConfigurationInvalid) as raised:
        open_keep(project=tmp_path)
    assert raised.value.faults == (f"{path}:2:23: a webhook must start with https://",)


WITNESS = "library+ec33deea+BAOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4"
LOG = "toolkeep/83f45518f2cef77d+feb06fed+AQOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4"


@pytest.mark.parametrize(
    ("text", "place", "word"),
    [
        (f"witnesses: [{{url: 'http://127.0.0.1:80@w.org/', key: {WITNESS}}}]", "2:21", "cannot be used"),
        (f"witnesses: [{{url: 'https://w.org/', key: {LOG}}}]", "2:44", "this is the key of a log"),
        (f"witness_for: [{WITNESS}]", "2:17", "this is the key of a witness"),
        (f"witness_for: [{LOG.replace('feb', 'fed')}]", "2:17", "does not have the id"),
    ],
    ids=["looks_like_this_machine", "log_as_witness", "witness_as_log", "slip"],
)
def test_a_witness_that_cannot_be_asked_or_believed_is_refused(
    tmp_path: Path, text: str, place: str, word: str
) -> None:
    path = configure(tmp_path, f"audit:\n  {text}\n")
    with pytest.raises(ConfigurationInvalid) as raised:
        open_keep(project=tmp_path)
    (fault,) = raised.value.faults
    assert fault.startswith(f"{path}:{place}: ")
    assert word in fault


_ISSUER = "issuer: https://login.example.org, algorithm: RS256"
_GRANT = "grants: [{claims: {sub: ada}, agent: ada, scopes: [call]}]"


@pytest.mark.parametrize(
    ("issuers", "place", "word"),
    [
        (f"{{{_ISSUER}, audience: a}}", "3:5: ", "grants nothing"),
        (f"{{{_ISSUER}, audience: a, {_GRANT}, host: 'http://a b'}}", "3:", "host"),
        (
            f"{{{_ISSUER}, token_type: JWT, audience: a, page: {{client_id: a, {_GRANT}}}}}",
            "3:86: ",
            "ID tokens would count as access tokens",
        ),
        (
            f"{{{_ISSUER}, audience: a, {_GRANT}}}\n  - {{{_ISSUER}, audience: b, {_GRANT}}}",
            "4:14: ",
            "an entry for this issuer already",
        ),
    ],
    ids=["grants_nothing", "host", "id_tokens", "twice"],
)
def test_an_issuer_that_would_count_otherwise_than_it_seems_is_refused(
    tmp_path: Path, issuers: str, place: str, word: str
) -> None:
    path = configure(tmp_path, f"identity:\n  issuers:\n  - {issuers}\n")
    with pytest.raises(ConfigurationInvalid) as raised:
        open_keep(project=tmp_path)
    (fault,) = raised.value.faults
    assert fault.startswith(f"{path}:{place}")
    assert word in fault


def test_what_is_expected_is_said_once(tmp_path: Path) -> None:
    configure(tmp_path, "tier: gold\napprovals: {wait: soon}\n")
    error = refusal_of(tmp_path)
    assert isinstance(error, ConfigurationInvalid)
    tier, wait = (fault.partition("config.yml:")[2] for fault in error.faults)
    assert tier.startswith("1:1: 'tier' is not an allowed value; expected one of \"core\", ")
    assert tier.endswith('"Enterprise".')
    assert (tier.count('"Enterprise"'), wait) == (1, "2:13: 'wait' must be a number, got string")
