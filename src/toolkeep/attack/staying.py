"""Runs attempts in programs that stay between calls, at strict, with all that a call may be granted.

A program of its own for each, which has answered a call before: what stays must contain what a worker does.
"""

import asyncio
import json
from dataclasses import replace
from typing import Any, Final

from toolkeep.attack.attempts.declare import Attempt
from toolkeep.attack.baits import Stage
from toolkeep.attack.confined import Confined
from toolkeep.attack.expected import levels_of
from toolkeep.errors import ToolkeepError
from toolkeep.sandbox.exchange import Ending, Reply
from toolkeep.sandbox.executables import executables
from toolkeep.sandbox.filters import for_level
from toolkeep.sandbox.frames import FrameRefused, parse
from toolkeep.sandbox.levels import Isolation, memory_bound
from toolkeep.sandbox.plan import Recipe
from toolkeep.sandbox.resident import Over, Program, Resident, ResidentOver
from toolkeep.sandbox.zygote import interpreter

RESIDENT: Final = "resident"
"""In the place of a level: strict, in a program that stays."""

_LINE_BYTES: Final = 1 << 20
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


_NOT_FOR_RESIDENTS: Final = {
    "take_shared_memory": "it reserves addresses; memory that is used is counted, by a cgroup or a watch",
    "raise_own_limits": "addresses have no limit there, and what can be written to has one that stays",
    "fork_without_leave": "a program that stays may start processes",
}
"""Attempts on what only a worker promises."""


def is_for_residents(attempt: Attempt) -> bool:
    """Those on the exchange with a worker have nothing to say to a program that speaks lines."""
    is_about_strict = Isolation.STRICT in levels_of(attempt) and not attempt.endings
    return is_about_strict and attempt.name not in _NOT_FOR_RESIDENTS


class Staying(Confined):
    """Attempts in programs that stay."""

    async def _call(
        self, attempt: Attempt, level: Isolation, stage: Stage, arguments: dict[str, Any]
    ) -> Reply | ToolkeepError:
        recipe = self._staying(self._recipe(attempt.module, attempt.name, level, stage, attempt))
        argv = (interpreter(), "-I", "-S", "-B", "-c", _DRIVER, str(self._ground.code))
        stage.after_planning()
        try:
            program = Program(path=argv[0], argv=argv)
            resident = await Resident.start(self._pool, recipe, program, line_bytes=_LINE_BYTES)
        except ResidentOver as over:
            return Reply(Ending.UNLOADED, text=over.text)
        except ToolkeepError as error:
            return error
        try:
            await _asked(resident, "", "", {})
            async with asyncio.timeout(attempt.deadline_s):
                return await _asked(resident, attempt.module, attempt.name, arguments)
        except TimeoutError:
            return Reply(Ending.TIMED_OUT)
        except ResidentOver as over:
            ending = Ending.OUT_OF_MEMORY if over.why is Over.OUT_OF_MEMORY else Ending.DIED
            return Reply(ending, text=over.last_words)
        finally:
            await resident.close()

    def _staying(self, recipe: Recipe) -> Recipe:
        """The same grant for a program that stays, with this interpreter to run."""
        worker = replace(
            recipe.worker,
            tool="",
            packages=(),
            stays=True,
            may_spawn=True,
            memory_by=memory_bound(recipe.worker.level, may_spawn=True),
            filter=for_level(recipe.worker.level, may_spawn=True).program(),
        )
        run = (*recipe.grant.run, *executables(interpreter()))
        return replace(recipe, worker=worker, grant=replace(recipe.grant, run=tuple(sorted(set(run)))))


async def _asked(resident: Resident, module: str, name: str, arguments: dict[str, Any]) -> Reply:
    order = {"module": module, "name": name, "arguments": arguments}
    await resident.send(json.dumps(order).encode() + b"\n")
    try:
        said = parse(await resident.line())
    except FrameRefused as refused:
        return Reply(Ending.BROKEN, text=str(refused))
    if "bytes" in said:
        return Reply(Ending.OK, value=bytes.fromhex(str(said["bytes"])))
    if "ok" in said:
        return Reply(Ending.OK, value=said["ok"])
    return Reply(Ending.RAISED, text=str(said.get("raised")))
