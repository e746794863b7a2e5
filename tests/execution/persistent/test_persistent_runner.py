"""Tools whose program stays between calls: who shares one, what each failure says, and what it reaches."""

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.config.projects import accept
from tests.sandbox.workers import descendants, until
from toolkeep import Keep, ToolResult, open_keep
from toolkeep.calls import Denied
from toolkeep.errors import DefinitionInvalid
from toolkeep.sandbox.launch import interpreter
from toolkeep.sources.process_source import ProcessSource

SCRIPT = str(Path(__file__).resolve().parents[1] / "conversing.py")
ARGV = [interpreter(), "-I", "-S", SCRIPT]
PARAMETERS = {
    "type": "object",
    "properties": {
        "how": {"type": "string"},
        "path": {"type": "string", "x-touches": "fs.read"},
        "really": {"type": "string"},
    },
}

pytestmark = pytest.mark.spec("SBX-1")


def definition(name: str = "talk", **fields: Any) -> dict[str, Any]:
    base = {"name": name, "description": "Talks.", "version": "1.0.0", "side_effects": ["FsRead"]}
    return {**base, "capabilities": ["fs.read"], "parameters": PARAMETERS, **fields}


def source(**fields: Any) -> ProcessSource:
    return ProcessSource(**{"argv": ARGV, "code": [SCRIPT], **fields})


def called(
    project: Path,
    calls: Sequence[tuple[str, Mapping[str, Any]]],
    *,
    made: ProcessSource | None = None,
    secrets: Mapping[str, str] | None = None,
    **fields: Any,
) -> list[ToolResult]:
    """The calls, one after the other, each by the agent that is named with it."""

    async def main() -> list[ToolResult]:
        async with open_keep(project=project, tool_secrets={"talk": secrets or {}}) as keep:
            keep.register((made or source()).tool(definition(**fields)))
            for agent in {agent for agent, _ in calls}:
                keep.declare_agent(agent, capabilities=[f"fs.read:{project}"])
            return [await keep.call("talk", dict(arguments), agent=agent) for agent, arguments in calls]

    return asyncio.run(main())


def test_one_program_answers_the_calls_of_an_agent_and_another_those_of_another(tmp_path: Path) -> None:
    results = called(tmp_path, [("a", {}), ("a", {}), ("b", {}), ("a", {})])
    assert [result.value for result in results] == [1, 2, 1, 3]
    assert {result.isolation for result in results} == {"strict"}


def test_another_grant_is_another_program(tmp_path: Path) -> None:
    async def main() -> list[Any]:
        async with open_keep(project=tmp_path) as keep:
            keep.register(source().tool(definition()))
            found = []
            for folder in ("one", "two", "one"):
                (tmp_path / folder).mkdir(exist_ok=True)
                keep.declare_agent("a", capabilities=[f"fs.read:{tmp_path / folder}"])
                found.append((await keep.call("talk", {}, agent="a")).value)
            return found

    assert asyncio.run(main()) == [1, 1, 1]  # the first ended when its grant was taken away


# --- what ends it ------------------------------------------------------------------------------

TAKEN_AWAY: Mapping[str, Callable[[Keep], Any]] = {
    "the tool is disabled": lambda keep: keep.disable("talk"),
    "the tool is removed": lambda keep: keep.unregister("talk"),
    "the agent holds less": lambda keep: keep.declare_agent("a"),
    "the policies are others": lambda keep: keep.use_policies(
        '@id("all") permit (principal, action, resource);'
    ),
    "a person says no": lambda keep: keep.call("talk", {}, agent="a", confirm=True),
}


def _programs() -> set[int]:
    return {pid for pid in descendants(os.getpid()) if SCRIPT in _command(pid)}


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


@pytest.mark.spec("SBX-2")
@pytest.mark.parametrize("what", TAKEN_AWAY)
def test_a_program_ends_when_it_could_not_be_called_any_more(what: str, tmp_path: Path) -> None:
    async def main() -> tuple[list[Any], bool, bool, int]:
        async with open_keep(project=tmp_path, approver=lambda _: False) as keep:
            keep.register(source().tool(definition()))
            for agent in ("a", "b"):
                keep.declare_agent(agent, capabilities=[f"fs.read:{tmp_path}"])
            values = [(await keep.call("talk", {}, agent=agent)).value for agent in ("a", "b")]
            before = _programs()
            taken = TAKEN_AWAY[what](keep)
            if isinstance(taken, Awaitable):
                await taken
            is_ended = await until(lambda: _programs() != before)
            is_of_all = what.startswith(("the tool", "the policies"))
            is_right = await until(lambda: len(_programs()) == (0 if is_of_all else 1))
            return values, is_ended, is_right, len(before)

    assert asyncio.run(main()) == ([1, 1], True, True, 2)


def test_a_no_does_not_end_the_program_under_another_call(tmp_path: Path) -> None:
    async def main() -> tuple[Any, bool]:
        async with open_keep(project=tmp_path, approver=lambda _: False) as keep:
            keep.register(source().tool(definition()))
            keep.declare_agent("a", capabilities=[f"fs.read:{tmp_path}"])
            await keep.call("talk", {}, agent="a")
            (program,) = _programs()
            os.kill(program, signal.SIGSTOP)  # so that the call is under way for as long as is wanted
            under_way = asyncio.ensure_future(keep.call("talk", {}, agent="a"))
            await keep.call("talk", {}, agent="a", confirm=True)
            os.kill(program, signal.SIGCONT)
            answer = (await under_way).value
            return answer, await until(lambda: not _programs())

    assert asyncio.run(main()) == (2, True)


FAILURES = {
    "leave": ("ACODE-TSR-034", "its program ended with exit status 3"),
    "crash": ("ACODE-TSR-034", "its program ended by signal 6 (Aborted)"),
    "close": ("ACODE-TSR-034", "its program closed its standard output"),
    "junk": ("ACODE-TSR-035", "its program wrote a line that is not a response: it is not JSON"),
    "empty": ("ACODE-TSR-035", "its program wrote an empty line"),
    "say twice": (
        "ACODE-TSR-035",
        "its program wrote a line that is not a response: a key appears twice",
    ),
    "answer another": ("ACODE-TSR-035", "its program answered another request"),
    "answer nobody": ("ACODE-TSR-035", "its program wrote an object that is no answer"),
    "flood": ("ACODE-TSR-036", "returned more than 100 MiB"),
    "fail": ("ACODE-TSR-034", "there is no such word"),
    "hang": ("ACODE-TSR-032", "took longer than 1 s"),
}


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[ToolResult]]:
    """For each failure the call that failed and the one after it, all in one keep."""

    async def main() -> dict[str, list[ToolResult]]:
        async with open_keep(project=tmp_path_factory.mktemp("project")) as keep:
            found = {}
            for number, how in enumerate(FAILURES):
                name = f"talk_{number}"
                keep.register(source().tool(definition(name, constraints={"max_execution_time": 20})))
                seconds = 1 if how == "hang" else None
                found[how] = [
                    await keep.call(name, {"how": how}, timeout_s=seconds),
                    await keep.call(name, {"how": "well"}),
                ]
            return found

    return asyncio.run(main())


@pytest.mark.parametrize("how", FAILURES)
def test_each_failure_says_what_happened_and_the_next_call_is_answered(
    how: str, failures: dict[str, list[ToolResult]]
) -> None:
    failed, good = failures[how]
    code, said = FAILURES[how]
    assert failed.error is not None
    assert failed.tool in str(failed.error)
    assert failed.error.code == code
    assert said in str(failed.error)
    assert good.value == (2 if how == "fail" else 1)  # a program that only says no is kept


def test_last_words_go_to_the_log_without_secrets_and_not_to_the_model(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = source(environment={"KEY": "{secret:key}"})
    with caplog.at_level(logging.WARNING):
        (failed,) = called(tmp_path, [("a", {"how": "leave"})], made=made, secrets={"key": "s3cr3t-value"})
    logged = [record.__dict__["detail"] for record in caplog.records if "detail" in record.__dict__]
    assert logged == ["the key is (hidden)"]
    assert "the key is" not in str(failed.error)
    assert "standard error is in the log" in str(failed.error)


def test_a_file_that_a_program_was_denied_is_named_to_the_operator(tmp_path: Path) -> None:
    words = f"cat: {tmp_path}: No such file or directory"
    (failed,) = called(tmp_path, [("a", {"how": "leave", "really": words})])
    assert failed.error is not None
    assert failed.error.diagnosis is not None
    told = failed.error.diagnosis
    assert (told.denied, told.subject, told.detail) == (Denied.FILE, str(tmp_path), words)
    assert str(tmp_path) not in failed.text


def test_a_secret_is_in_the_environment_of_the_program(tmp_path: Path) -> None:
    made = source(environment={"KEY": "Bearer {secret:key}"})
    (result,) = called(tmp_path, [("a", {"how": "who"})], made=made, secrets={"key": "s3cr3t"})
    assert result.value == "Bearer s3cr3t"


def test_a_program_does_not_say_its_secret_back(tmp_path: Path) -> None:
    made = source(environment={"KEY": "{secret:key}"})
    calls = [("a", {"how": "tell"}), ("a", {"how": "complain"})]
    told, failed = called(tmp_path, calls, made=made, secrets={"key": 'gr\u00fcn"s3cr3t\\key'})
    assert told.value == {"(hidden)": ["my key is (hidden)!"]}
    assert failed.error is not None
    assert "(hidden) is no good" in failed.text
    assert "s3cr3t" not in failed.text


def test_a_secret_that_nobody_gave_starts_nothing(tmp_path: Path) -> None:
    (result,) = called(tmp_path, [("a", {})], made=source(environment={"KEY": "{secret:key}"}))
    assert result.error is not None
    assert result.error.code == "ACODE-TSR-017"


def test_it_reads_what_is_granted_and_nothing_else(tmp_path: Path) -> None:
    for name in ("in/a.txt", "out/b.txt"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(name)
    granted, outside = str(tmp_path / "in/a.txt"), str(tmp_path / "out/b.txt")
    results = called(
        tmp_path,
        [
            ("a", {"how": "read", "path": granted}),
            ("a", {"how": "read", "path": granted, "really": outside}),
            ("a", {"how": "read", "path": outside}),
        ],
        capabilities=[f"fs.read:{tmp_path / 'in'}"],
    )
    assert [result.value for result in results[:2]] == ["in/a.txt", "not read: No such file or directory"]
    assert results[2].error is not None
    assert results[2].error.code == "ACODE-TSR-027"


def test_an_idle_program_ends(tmp_path: Path) -> None:
    async def main() -> list[Any]:
        async with open_keep(project=tmp_path) as keep:
            keep.register(source(idle_s=1).tool(definition()))
            first = (await keep.call("talk", {}, agent="local")).value
            await _until_gone()
            return [first, (await keep.call("talk", {}, agent="local")).value]

    assert asyncio.run(main()) == [1, 1]


async def _until_gone() -> None:
    (path,) = _ours()
    ended = os.pidfd_open(int(path.parent.name))
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().add_reader(ended, gone.cancel)
    await asyncio.wait({gone}, timeout=30)
    asyncio.get_running_loop().remove_reader(ended)
    os.close(ended)


def _ours() -> list[Path]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().split(b"\0")[3:4] == [SCRIPT.encode()]:
                found.append(path)
        except OSError:
            continue
    return found


def test_nothing_is_left_of_a_keep_that_was_closed(tmp_path: Path) -> None:
    called(tmp_path, [("a", {})])
    assert not _ours()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"argv": []}, "has no argv"),
        ({"argv": ["x\0y"]}, "has a argv that is not a list of strings"),
        ({"environment": {"LD_PRELOAD": "x"}}, "sets the variable LD_PRELOAD"),
        ({"environment": {"https_proxy": "x"}}, "sets the variable https_proxy"),
        ({"environment": {"A B": "x"}}, "a name that no variable can have"),
        ({"idle_s": 0}, "an idle_s that is not a number from 1 to 86400"),
    ],
)
def test_what_cannot_be_started_is_refused_when_it_is_defined(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(DefinitionInvalid, match=said):
        source(**fields).tool(definition())


def test_a_program_that_is_not_there_is_said_to_be(tmp_path: Path) -> None:
    (result,) = called(tmp_path, [("a", {})], made=source(argv=["/usr/bin/there-is-none"]))
    assert result.error is not None
    assert result.error.code == "ACODE-TSR-038"
    assert "the program '/usr/bin/there-is-none' that its configuration names is not there" in str(
        result.error
    )


def test_no_program_is_made_of_the_state_of_the_keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLKEEP_HOME", str(tmp_path / "state"))
    (tmp_path / "p").mkdir()
    (result,) = called(tmp_path / "p", [("a", {})], made=source(code=[str(tmp_path)]))
    assert "holds the state of toolkeep" in str(result.error)


@pytest.mark.parametrize("level", ["none", "restricted"])
def test_levels_at_which_no_program_stays_are_refused(level: str, tmp_path: Path) -> None:
    (result,) = called(tmp_path, [("a", {})], constraints={"required_isolation": level})
    assert result.error is not None
    assert result.error.code == "ACODE-TSR-037"


def test_a_configuration_names_one(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / "main.py").write_text(Path(SCRIPT).read_text())
    folder = tmp_path / ".agent"
    folder.mkdir()
    (folder / "config.yml").write_text(
        f"""
tool_registry:
  custom_tools:
    - name: talk
      description: Talks.
      version: "1.0.0"
      side_effects: [None]
      parameters: {{type: object, properties: {{how: {{type: string}}}}}}
      run:
        process:
          argv: [{interpreter()}, -I, -S, ./server/main.py]
          code: [./server]
"""
    )

    async def main() -> list[Any]:
        async with _accepted(tmp_path) as keep:
            return [(await keep.call("talk", {}, agent="local")).value for _ in range(2)]

    assert asyncio.run(main()) == [1, 2]


def _accepted(project: Path) -> Keep:
    accept(project)
    return open_keep(project=project)
