"""Runs escape attempts at an isolation level, in workers of the real pool, with the widest possible grant."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from toolkeep.errors import ToolkeepError
from toolkeep.escape_suite import signs
from toolkeep.escape_suite.attempt_catalog import CONCURRENT_CALLS, parameters
from toolkeep.escape_suite.attempts.declare import Attempt
from toolkeep.escape_suite.baits import (
    CPU_S,
    MEMORY_BYTES,
    OPEN_FILES,
    PROCESSES,
    BaitFolder,
    Stage,
    concurrent_arguments,
    last_of,
)
from toolkeep.sandbox.frames import parse
from toolkeep.sandbox.isolation_levels import Isolation, memory_bound
from toolkeep.sandbox.plan import Grant, Recipe, ResourceLimits, WorkerPlan, ZygotePlan
from toolkeep.sandbox.seccomp_filters import for_level, templated
from toolkeep.sandbox.worker_exchange import Ending, Reply
from toolkeep.sandbox.worker_pool import Key, Pool

_OUTPUT_BYTES: Final = 1 << 20
_GONE_S: Final = 3.0
"""How long the processes of a call may take to be gone."""

_NO_ARGUMENTS: Final = b'{"arguments":{}}'
_PROGRAMS: Final = ("/usr",)
"""Programs that attempts with process grants may start: everything on the machine."""

_PLENTY_S: Final = 20
"""CPU seconds for attempts that do not test the CPU limit."""


ALONE: Final = "alone"
TEMPLATED: Final = "templated"
WORKERS: Final = (ALONE, TEMPLATED)
"""Kinds of workers: those that import the tool themselves, and those that are forked from a template. Given
beside the levels; without one, each attempt is made in both."""


class Confined:
    """Attempts in the sandbox."""

    def __init__(self, bait_folder: BaitFolder, pool: Pool, *, is_templated: bool = False) -> None:
        """`is_templated`: in workers forked from a template, where the attempt lets itself be sealed."""
        self._bait_folder = bait_folder
        self._pool = pool
        self._is_templated = is_templated

    async def run(self, attempt: Attempt, level: Isolation) -> dict[str, Any]:
        """Result of one attempt at one level."""
        stage = Stage(self._bait_folder, is_control=False)
        with stage.cleanup:
            arguments = stage.create_baits(parameters(attempt.module, attempt.name))
            async with self._concurrent_call(attempt, level, stage, arguments) as other_call:
                before = time.process_time() - time.thread_time()
                reply = await self._call(attempt, level, stage, arguments)
                beside_s = time.process_time() - time.thread_time() - before
            said = signs.words(reply)
            seen = signs.seen(stage, arguments, said, _GONE_S)
            if other_call and other_call[0].value == "hit":
                seen.append("hit")
            seen += await self._unsound(attempt, level, reply)
            if attempt.shows == "stalled" and _held_the_loop(reply, beside_s):
                seen.append("stalled")
            return {"seen": seen, "ending": signs.ending(reply), "said": said[:200]}

    async def _call(
        self, attempt: Attempt, level: Isolation, stage: Stage, arguments: dict[str, Any]
    ) -> Reply | ToolkeepError:
        key = self._key(attempt.module, attempt.name, level, stage, attempt)
        earlier, last = (json.dumps({"arguments": one}).encode() for one in (arguments, last_of(arguments)))
        stage.after_planning()
        try:
            for _ in range(attempt.calls - 1):
                await self._pool.run(key, earlier, attempt.deadline_s, attempt.output_bytes)
            return await self._pool.run(key, last, attempt.deadline_s, attempt.output_bytes)
        except ToolkeepError as error:
            return error

    def _key(
        self, module: str, name: str, level: Isolation, stage: Stage | None, attempt: Attempt | None = None
    ) -> Key:
        key = Key(f"{module}:{name}", level, (stage.name if stage else "", self._is_templated))
        self._pool.admit(key, self._recipe(module, name, level, stage, attempt))
        return key

    def _recipe(
        self, module: str, name: str, level: Isolation, stage: Stage | None, attempt: Attempt | None = None
    ) -> Recipe:
        bait_folder, is_strict = self._bait_folder, level is Isolation.STRICT
        # The widest grant that the level allows: a contained attempt then shows more.
        may_spawn = is_strict and (attempt is None or attempt.may_spawn)
        read = (str(bait_folder.shelf),) if is_strict else ()
        is_about_time = attempt is not None and "cpu_s" in parameters(module, name)
        profile = for_level(level, may_spawn=may_spawn)
        return Recipe(
            zygote=ZygotePlan(
                level=level,
                code=(str(bait_folder.code),),
                read=read,
                write=(str(bait_folder.work),) if is_strict else (),
                has_proc=True,
            ),
            worker=WorkerPlan(
                tool=f"attempts.{module}:{name}",
                level=level,
                filter=profile.program(),
                template_filter=templated(profile).program() if self._is_templated else None,
                packages=(str(bait_folder.code),),
                may_spawn=may_spawn,
                memory_by=memory_bound(level, may_spawn=may_spawn),
                limits=ResourceLimits(
                    memory_bytes=MEMORY_BYTES,
                    processes=PROCESSES,
                    open_files=OPEN_FILES,
                    cpu_s=CPU_S if is_about_time else _PLENTY_S,
                    scratch_bytes=16 << 20,
                    scratch_files=1000,
                ),
            ),
            grant=Grant(
                read=read,
                write=(str(stage.granted),) if is_strict and stage else (),
                frozen=stage.frozen() if is_strict and stage else (),
                run=_PROGRAMS if may_spawn else (),
            ),
        )

    @contextlib.asynccontextmanager
    async def _concurrent_call(
        self, attempt: Attempt, level: Isolation, stage: Stage, arguments: dict[str, Any]
    ) -> AsyncIterator[list[Reply]]:
        """A concurrent call, for attempts that attack another call."""
        replies: list[Reply] = []
        if "planted" in arguments:
            await self._plant(level, stage)
        if attempt.name not in CONCURRENT_CALLS:
            yield replies
            return
        module, name = CONCURRENT_CALLS[attempt.name]
        key = self._key(module, name, level, stage)
        other_call = concurrent_arguments(parameters(module, name), stage, arguments)
        request = json.dumps({"arguments": other_call}).encode()
        running = asyncio.ensure_future(self._pool.run(key, request, 5.0, _OUTPUT_BYTES))
        await asyncio.to_thread(_wait_for_mark, stage, running)
        if "other_call_pid" in parameters(attempt.module, attempt.name):
            arguments["other_call_pid"] = next(iter(stage.left()), 0)
        try:
            yield replies
        finally:
            replies.append(await running)

    async def _plant(self, level: Isolation, stage: Stage) -> None:
        """Another call of the same zygote, which is granted a file whose name is the secret."""
        file = stage.own / f"{stage.planted()}{stage.secret}"
        file.write_text("granted")
        if level is not Isolation.STRICT:
            return
        other = Stage(self._bait_folder, is_control=False)
        with other.cleanup:
            made = self._recipe("results", "sound", level, other)
            planted = Key("planted", level, (stage.name, self._is_templated))
            self._pool.admit(planted, replace(made, grant=replace(made.grant, read=(str(file),))))
            await self._pool.run(planted, _NO_ARGUMENTS, 5.0, _OUTPUT_BYTES)

    async def _unsound(self, attempt: Attempt, level: Isolation, reply: Reply | ToolkeepError) -> list[str]:
        """Whether the host survived: the ending is an allowed one, and the next call is served."""
        if not attempt.endings:
            return []
        ending = signs.ending(reply)
        found = [] if ending in attempt.endings else [f"the call ended as {ending}"]
        key = self._key("results", "sound", level, None)
        next_one = await self._pool.run(key, _NO_ARGUMENTS, 10.0, _OUTPUT_BYTES)
        if next_one != Reply(Ending.OK, value="sound"):
            found.append("the next call was not served")
        return found


def _held_the_loop(reply: Reply | ToolkeepError, beside_s: float) -> bool:
    """Whether other threads used less CPU than parsing the answer takes: then the event loop parsed it."""
    if isinstance(reply, ToolkeepError):
        return False
    body = msgspec.json.encode({"ok": reply.value})
    began = time.thread_time()
    parse(body)
    return beside_s < (time.thread_time() - began) / 2


def _wait_for_mark(stage: Stage, running: "asyncio.Future[Reply]") -> None:
    while not running.done() and not stage.left():
        time.sleep(0.01)
