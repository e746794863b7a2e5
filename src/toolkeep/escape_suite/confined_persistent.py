"""Runs escape attempts in persistent processes, at strict, with the widest possible grant.

Each gets its own program, which has answered a call before: a persistent process must contain what a worker
contains.
"""

import asyncio
import json
from typing import Any, Final

from msgspec.structs import replace

from toolkeep.errors import ToolkeepError
from toolkeep.escape_suite.attempts.declare import Attempt
from toolkeep.escape_suite.baits import Stage
from toolkeep.escape_suite.confined import Confined
from toolkeep.escape_suite.expected import levels_of
from toolkeep.sandbox.executables import executables
from toolkeep.sandbox.frames import FrameRefused, parse
from toolkeep.sandbox.isolation_levels import Isolation, memory_bound
from toolkeep.sandbox.launch import interpreter
from toolkeep.sandbox.persistent_process import ExitReason, PersistentProcess, ProcessExited, Program
from toolkeep.sandbox.plan import Recipe
from toolkeep.sandbox.seccomp_filters import for_level, supervision
from toolkeep.sandbox.worker_exchange import Ending, Reply

PERSISTENT: Final = "resident"
"""In place of a level: strict, in a persistent process."""

_LINE_BYTES: Final = 1 << 20
"""Maximum length of an answer: the output limit of an attempt that states none."""
_DRIVER: Final = """
import importlib, importlib.util, json, sys
code = sys.argv[1]
spec = importlib.util.spec_from_file_location(
    "attempts", code + "/__init__.py", submodule_search_locations=[code])
sys.modules["attempts"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["attempts"])
for line in sys.stdin:
    order = json.loads(line)
    try:
        if order["name"]:
            module = importlib.import_module("attempts." + order["module"])
            value = getattr(module, order["name"])(**order["arguments"])
        else:
            value = "sound"
        said = {"bytes": value.hex()} if isinstance(value, bytes) else {"ok": value}
    except Exception as error:
        said = {"raised": type(error).__name__}
    print(json.dumps(said), flush=True)
"""


_NOT_FOR_PERSISTENT: Final = {
    "take_shared_memory": "it reserves addresses; memory that is used is counted, by a cgroup or a watch",
    "raise_own_limits": "addresses have no limit there, and what can be written to has one that stays",
    "fork_without_leave": "a program that stays may start processes",
    "read_memory_of_an_earlier_call": "a program that stays has the memory of its earlier calls",
    "read_open_files_of_an_earlier_call": "and their open files",
    "read_objects_of_an_earlier_call": "and what else they left in it",
}
"""Attempts on guarantees that only one-shot workers have."""


def applies_to_persistent(attempt: Attempt) -> bool:
    """Whether an attempt applies to persistent processes; those on the worker protocol do not."""
    is_about_strict = Isolation.STRICT in levels_of(attempt) and not attempt.endings
    return is_about_strict and attempt.name not in _NOT_FOR_PERSISTENT


class PersistentConfined(Confined):
    """Attempts in persistent processes."""

    async def _call(
        self, attempt: Attempt, level: Isolation, stage: Stage, arguments: dict[str, Any]
    ) -> Reply | ToolkeepError:
        recipe = self._persistent_recipe(self._recipe(attempt.module, attempt.name, level, stage, attempt))
        argv = (interpreter(), "-I", "-S", "-B", "-c", _DRIVER, str(self._bait_folder.code))
        stage.after_planning()
        try:
            program = Program(path=argv[0], argv=argv)
            process = await PersistentProcess.start(self._pool, recipe, program, line_bytes=_LINE_BYTES)
        except ProcessExited as over:
            return Reply(Ending.UNLOADED, text=over.text)
        except ToolkeepError as error:
            return error
        try:
            await _asked(process, "", "", {})
            async with asyncio.timeout(attempt.deadline_s):
                return await _asked(process, attempt.module, attempt.name, arguments)
        except TimeoutError:
            return Reply(Ending.TIMED_OUT)
        except ProcessExited as over:
            ending = Ending.OUT_OF_MEMORY if over.why is ExitReason.OUT_OF_MEMORY else Ending.DIED
            return Reply(ending, text=over.last_words)
        finally:
            await process.close()

    def _persistent_recipe(self, recipe: Recipe) -> Recipe:
        """The same grant for a persistent worker, with this interpreter as its program."""
        profile = for_level(recipe.worker.level, may_spawn=True, is_supervised=True)
        worker = replace(
            recipe.worker,
            tool="",
            packages=(),
            is_persistent=True,
            may_spawn=True,
            memory_by=memory_bound(recipe.worker.level, may_spawn=True),
            filter=profile.program(),
            supervisor=supervision(profile),
        )
        run = (*recipe.grant.run, *executables(interpreter()))
        return replace(recipe, worker=worker, grant=replace(recipe.grant, run=tuple(sorted(set(run)))))


async def _asked(process: PersistentProcess, module: str, name: str, arguments: dict[str, Any]) -> Reply:
    order = {"module": module, "name": name, "arguments": arguments}
    await process.send(json.dumps(order).encode() + b"\n")
    try:
        said = parse(await process.line())
    except FrameRefused as refused:
        return Reply(Ending.BROKEN, text=str(refused))
    if "bytes" in said:
        return Reply(Ending.OK, value=bytes.fromhex(str(said["bytes"])))
    if "ok" in said:
        return Reply(Ending.OK, value=said["ok"])
    return Reply(Ending.RAISED, text=str(said.get("raised")))
