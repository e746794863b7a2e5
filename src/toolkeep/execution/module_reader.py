"""Reads the definitions of a Python file or module in a confined worker without any grant (SBX-1).

In: what to import, and where its code lies. Out: definitions as data. The worker runs hostile code: it may
forge, flood, hang or crash. The reply is bounded in time, size and number, and only its form is checked here;
definitions are then checked like those of any other file.
"""

import asyncio
import json
import sys
import threading
from collections.abc import Iterable
from typing import Any, Final

from toolkeep.definitions.found_tool import FoundTool
from toolkeep.errors import Code, FileUnreadable, Problem
from toolkeep.execution.isolation_check import IsolationCheck
from toolkeep.execution.tool_code import ToolCode, find_code
from toolkeep.execution.worker_grant import check_code
from toolkeep.limits import MIB
from toolkeep.sandbox.errors import SandboxUnavailable
from toolkeep.sandbox.isolation_levels import Isolation
from toolkeep.sandbox.plan import DEFAULT_ENVIRONMENT, Recipe, ResourceLimits, WorkerPlan, ZygotePlan
from toolkeep.sandbox.seccomp_filters import for_level
from toolkeep.sandbox.trusted_paths import OURS
from toolkeep.sandbox.unconfined_process import UnconfinedPlan, run_unconfined
from toolkeep.sandbox.worker_exchange import Ending, Reply, Request
from toolkeep.sandbox.worker_pool import Key, Pool, PoolSize
from toolkeep.text.display import excerpt

_READER: Final = "toolkeep.authoring.module_tools:describe_tools"
_SECONDS: Final = 30.0
"""Importing a large library takes seconds; a file that never ends is given up."""
_LIMITS: Final = ResourceLimits(cpu_s=int(_SECONDS))
_BYTES: Final = 4 * MIB
"""A thousand tools with large schemas."""
_TOOLS: Final = 1_000
"""Tools of one file: each is compiled at every start."""
_NAME_CHARS: Final = 200
"""Characters of a name in the module, which the worker chooses and messages repeat."""
_PROBLEMS: Final = 50
"""Problems of one tool that are shown; an author fixes a few at a time."""
_TEXT_CHARS: Final = 500
"""Characters of each text of a problem: some lines of a terminal."""


Variables = tuple[tuple[str, str], ...]
"""Variables of the environment beside the default ones."""


class ModuleReader:
    """Reads modules; probes this machine once."""

    def __init__(self, state_folder: str = "", unconfined: Iterable[str] = ()) -> None:
        """`state_folder` holds toolkeep's own state, which no worker may see.

        `unconfined` are the modules and absolute paths that an accepted configuration lets run unconfined
        where this machine cannot confine them.
        """
        self._state_folder = state_folder
        self._unconfined = frozenset(unconfined)
        self._machine = IsolationCheck()

    def read(
        self, shown: str, place: str, places: tuple[str, ...], variables: Variables = ()
    ) -> list[FoundTool]:
        """The tools of a module; raises `FileUnreadable`, or `SandboxUnavailable` if nothing can confine it.

        Runs an event loop in a thread of its own, because the caller may be inside one.
        """
        answers: list[Reply | Exception] = []
        thread = threading.Thread(
            target=self._run, args=(shown, place, places, variables, answers), daemon=True
        )
        thread.start()
        thread.join()
        (answer,) = answers
        if isinstance(answer, Exception):
            raise answer
        return _found(shown, answer)

    def _run(
        self,
        shown: str,
        place: str,
        places: tuple[str, ...],
        variables: Variables,
        answers: list[Reply | Exception],
    ) -> None:
        try:
            answers.append(asyncio.run(self._answer(place, places, variables)))
        except ValueError as error:  # a module that is not there, or code beside toolkeep's own state
            answers.append(FileUnreadable(shown, str(error)))
        except Exception as error:  # noqa: BLE001 -- raised again in the thread of the caller
            answers.append(error)

    async def _answer(self, place: str, places: tuple[str, ...], variables: Variables) -> Reply:
        code = find_code(f"{place}:", sys.path, places)
        check_code(code.shown, self._state_folder)
        request = json.dumps({"arguments": {"place": place}}).encode()
        findings = await self._machine.findings(Isolation.STRICT)
        try:
            # Fail closed: before any code runs.
            findings.require(Isolation.STRICT)
        except SandboxUnavailable as error:
            if place not in self._unconfined:
                raise _unconfinable(error) from error
            return await _answer_unconfined(code, request, variables)
        pool = Pool(PoolSize(warm_per_kind=0))
        key = Key(place, Isolation.STRICT, None)
        try:
            pool.admit(key, _recipe(code, variables))
            return await pool.run(key, request, _SECONDS, _BYTES)
        finally:
            await pool.close()


def _unconfinable(error: SandboxUnavailable) -> SandboxUnavailable:
    """The one place that says what to do where this machine cannot confine a file of tools."""
    hint = f"{error.hint}; or accept a configuration that names the file under `unconfined:`"
    return SandboxUnavailable(error.level, missing=error.missing, hint=hint)


async def _answer_unconfined(code: ToolCode, request: bytes, variables: Variables) -> Reply:
    environment = (*DEFAULT_ENVIRONMENT, *variables)
    plan = UnconfinedPlan(_READER, code.site, code.packages, _LIMITS, environment)
    until = asyncio.get_running_loop().time() + _SECONDS
    return await run_unconfined(plan, Request(request, until, _BYTES))


def _recipe(code: ToolCode, variables: Variables) -> Recipe:
    """Strict, with nothing granted: no files but the code, no network, no processes."""
    level = Isolation.STRICT
    worker = WorkerPlan(
        tool=_READER,
        level=level,
        filter=for_level(level).program(),
        import_paths=code.site,
        packages=code.packages,
        limits=_LIMITS,
        environment=(*DEFAULT_ENVIRONMENT, *variables),
    )
    return Recipe(zygote=ZygotePlan(level=level, code=code.shown), worker=worker)


_OUR_FRAMES: Final = (f'  File "{OURS}/', '  File "<frozen importlib')
_ENDINGS: Final = {
    Ending.TIMED_OUT: f"importing it took longer than {_SECONDS:.0f} s",
    Ending.TOO_BIG: f"its definitions have more than {_BYTES} bytes",
    Ending.OUT_OF_MEMORY: "importing it took too much memory",
    Ending.DIED: "importing it ended the process",
}


def _found(shown: str, reply: Reply) -> list[FoundTool]:
    if reply.exception is not None:
        lines = reply.exception.traceback(has_texts=True).split("\n")
        own = [line for line in lines if not line.startswith(_OUR_FRAMES)]
        raise FileUnreadable(shown, "\n".join(("importing it failed", *own)))
    if reply.ending is not Ending.OK:
        reason = _ENDINGS.get(reply.ending, "it gave no definitions")
        raise FileUnreadable(shown, f"{reason}{f' ({reply.text})' if reply.text else ''}")
    if not isinstance(reply.value, list):
        raise FileUnreadable(shown, "it gave no definitions")
    if len(reply.value) > _TOOLS:
        raise FileUnreadable(shown, f"it has more than {_TOOLS} tools")
    return [_read(shown, said) for said in reply.value]


def _read(shown: str, said: Any) -> FoundTool:
    match said:
        case {"reference": str(name), "definition": dict(definition), **rest} if _is_name(name) and not rest:
            return FoundTool(reference=name, definition=definition)
        case {"reference": str(name), "problems": [*problems], **rest} if _is_name(name) and not rest:
            return FoundTool(reference=name, problems=tuple(map(_problem, problems[:_PROBLEMS])))
        case _:
            raise FileUnreadable(shown, "it gave no definitions")


def _is_name(name: str) -> bool:
    return len(name) <= _NAME_CHARS and name.isidentifier()


def _problem(said: Any) -> Problem:
    told = said if isinstance(said, dict) else {}
    field, message, fix = (
        excerpt(str(told.get(key, "")), _TEXT_CHARS) for key in ("field", "message", "fix")
    )
    return Problem(field=field, code=Code.DEFINITION_INVALID, message=message, fix=fix)
