"""What is disabled or withdrawn counts at once here, for later starts, and soon on other servers."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import pytest

from tests.calls.test_shared_claims import open_server
from tests.storage.cluster import Cluster
from toolkeep import Code, Keep, Touches, open_keep, tool

pytestmark = pytest.mark.spec("SCL-2")
READ = ["fs.read:."]


def read_note(path: Annotated[str, Touches("fs.read")]) -> str:
    """Read a note."""
    return Path(path).read_text()


def hello() -> str:
    """Say hello."""
    return "hello"


def ready(keep: Keep) -> Keep:
    keep.register(tool(name="read_note", effects="reads", danger="low")(read_note))
    keep.register(tool(name="hello", effects="none", danger="low")(hello))
    keep.declare_agent("helper", capabilities=READ, permissions=["tool.filesystem.read"])
    return keep


def answers(keep: Keep, note: Path) -> list[Code | None]:
    """How a call that reads and one that touches nothing are answered."""
    calls = [("read_note", {"path": str(note)}), ("hello", {})]
    return [keep.call_sync(name, arguments, agent="helper").code for name, arguments in calls]


@pytest.fixture
def note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    (project / "note").write_text("note")
    return project / "note"


NO_GRANT = [Code.NOT_PERMITTED, None]
UNKNOWN = [Code.AGENT_UNKNOWN, Code.AGENT_UNKNOWN]


@pytest.mark.parametrize(
    ("capability", "expected"), [("fs.read:.", NO_GRANT), ("fs.read", NO_GRANT), ("", UNKNOWN)]
)
def test_what_is_withdrawn_is_refused_until_it_is_restored_also_after_a_restart(
    note: Path, capability: str, expected: list[Code | None]
) -> None:
    with ready(open_keep()) as keep:
        assert answers(keep, note) == [None, None]
        keep.withdraw("helper", capability)
        assert answers(keep, note) == expected
        keep.declare_agent("helper", capabilities=READ, permissions=["tool.filesystem.read"])
        assert answers(keep, note) == expected
    with ready(open_keep()) as keep:
        assert keep.withdrawn == {"helper": {capability}}
        assert answers(keep, note) == expected
        keep.restore("helper", capability)
        assert answers(keep, note) == [None, None]


def test_only_what_an_agent_holds_can_be_withdrawn() -> None:
    with ready(Keep()) as keep:
        for agent, capability in (("nobody", ""), ("helper", "net.read"), ("helper", "fs.read:/")):
            with pytest.raises(ValueError, match=r"is not declared|holds no"):
                keep.withdraw(agent, capability)
        assert keep.withdrawn == {}


def soon(happens: Callable[[], bool]) -> float:
    """The seconds until something happens; fails after thirty."""
    began = time.monotonic()
    while not happens():
        assert time.monotonic() - began < 30
        time.sleep(0.002)
    return time.monotonic() - began


def test_it_counts_on_another_server_within_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres: Cluster
) -> None:
    url = postgres.clean()
    with (
        ready(open_server(tmp_path / "one", monkeypatch, url)) as one,
        ready(open_server(tmp_path / "other", monkeypatch, url)) as other,
    ):
        soon(lambda: other.call_sync("hello", {}).ok)  # it knows that it is current
        took = []
        for _ in range(5):
            one.withdraw("helper")
            took.append(soon(lambda: other.call_sync("hello", {}, agent="helper").code is Code.AGENT_UNKNOWN))
            one.restore("helper")
            took.append(soon(lambda: other.call_sync("hello", {}, agent="helper").ok))
            one.disable("hello", remember=True)
            took.append(soon(lambda: not other.call_sync("hello", {}).ok))
            one.enable("hello", remember=True)
            took.append(soon(lambda: other.call_sync("hello", {}).ok))
        assert max(took) < 1
        postgres.stop()
        soon(lambda: other.call_sync("hello", {}).code is Code.STORE_UNAVAILABLE)
        postgres.start()
        soon(lambda: other.call_sync("hello", {}).ok)


def test_a_server_that_starts_without_the_database_lists_tools_and_calls_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres: Cluster
) -> None:
    url = postgres.clean()
    postgres.stop()
    try:
        with ready(open_server(tmp_path, monkeypatch, url)) as keep:
            assert [tool.name for tool in keep.tools()] == ["hello", "read_note"]
            assert keep.call_sync("hello", {}).code is Code.STORE_UNAVAILABLE
            postgres.start()
            soon(lambda: keep.call_sync("hello", {}).ok)
    finally:
        postgres.start()
