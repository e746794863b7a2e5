"""Runs all attempts of one kind as whoever starts it, and prints a line of JSON for each run.

`python -m tests.hostile.sandbox.host KIND FOLDER`: the folder belongs to this user and to this run. The host is
what decides: it looks at its files, listeners and processes, and believes an attempt only where it cannot see.
"""

import asyncio
import contextlib
import importlib
import inspect
import json
import os
import secrets
import shutil
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tests.hostile.sandbox import naive
from tests.hostile.sandbox.attempts.declare import DECLARED, Attempt
from tests.hostile.sandbox.bait import CPU_S, HERE, MEMORY_BYTES, OPEN_FILES, PROCESSES, Ground, Stage
from tests.hostile.sandbox.expected import levels_of
from toolkeep.canonical import canonical_bytes
from toolkeep.errors import ToolkeepError
from toolkeep.results.output import _plain
from toolkeep.sandbox import filters
from toolkeep.sandbox.bpf import Program
from toolkeep.sandbox.exchange import Ending, Reply
from toolkeep.sandbox.levels import Isolation, Mechanism
from toolkeep.sandbox.plan import Recipe, ResourceLimits, WorkerPlan, ZygotePlan
from toolkeep.sandbox.pool import Key, Pool, PoolSize
from toolkeep.sandbox.syscalls import this_machine

OUTPUT_BYTES: Final = 1 << 20
GONE_S: Final = 3.0
"""How long the processes of a call may take to be gone."""

COMPANIONS: Final = {
    "signal_another_call": ("processes", "wait_to_be_hit"),
    "read_scratch_of_another_call": ("files_write", "sleep_with_a_secret"),
    "meet_another_call_on_loopback": ("network", "wait_on_loopback"),
}
"""Attempts that need another call beside them, and what that one does."""


def declared(kind: str) -> dict[str, Attempt]:
    """The attempts of a kind."""
    modules = [kind]
    if kind == "results":
        modules += sorted(path.stem for path in (HERE / "attempts").glob("early_*.py"))
    for module in modules:
        importlib.import_module(f"tests.hostile.sandbox.attempts.{module}")
    return DECLARED[kind]


def program_for(level: Isolation, *, may_spawn: bool) -> Program:
    """The filter of a level, with all that a call may be granted."""
    machine = this_machine()
    if machine is None:
        raise RuntimeError("no filter can be made on this architecture")
    if level is Isolation.STANDARD:
        return filters.standard(machine).program()
    if level is Isolation.STRICT:
        return filters.strict(machine, may_spawn=may_spawn, may_connect=False).program()
    return filters.restricted(machine).program()


def memory_by(level: Isolation, *, may_spawn: bool) -> Mechanism:
    """What bounds memory on every machine."""
    has_processes = may_spawn or level is Isolation.STANDARD
    return Mechanism.MEMORY_WATCH if has_processes else Mechanism.MEMORY_LIMIT


class Host:
    """Runs attempts, confined and not."""

    def __init__(self, ground: Ground, pool: Pool) -> None:
        self._ground = ground
        self._pool = pool

    # --- confined ----------------------------------------------------------------------------

    async def confined(self, attempt: Attempt, level: Isolation) -> dict[str, Any]:
        """What came of one attempt at one level."""
        stage = Stage(self._ground, is_control=False)
        with stage.cleanup:
            arguments = stage.lay_out(list(inspect.signature(attempt.function).parameters))
            async with self._beside(attempt, level, stage, arguments) as companion:
                reply = await self._call(attempt, level, stage, arguments)
            seen = self._seen(stage, arguments, _said(reply), GONE_S)
            if companion and companion[0].value == "hit":
                seen.append("hit")
            seen += await self._unsound(attempt, level, reply)
            return {"seen": seen, "ending": _ending(reply), "said": _said(reply)[:200]}

    async def _call(
        self, attempt: Attempt, level: Isolation, stage: Stage, arguments: dict[str, Any]
    ) -> Reply | ToolkeepError:
        key = self._key(attempt.module, attempt.name, level, stage, attempt)
        request = json.dumps({"arguments": arguments}).encode()
        stage.after_planning()
        try:
            return await self._pool.run(key, request, attempt.deadline_s, OUTPUT_BYTES)
        except ToolkeepError as error:
            return error

    def _key(
        self, module: str, name: str, level: Isolation, stage: Stage | None, attempt: Attempt | None
    ) -> Key:
        is_strict = level is Isolation.STRICT
        may_spawn = is_strict and (attempt is None or attempt.may_spawn)
        ground = self._ground
        write = (str(stage.granted),) if is_strict and stage else ()
        cpu_s = CPU_S if attempt and "cpu_s" in inspect.signature(attempt.function).parameters else 20
        made = Recipe(
            zygote=ZygotePlan(
                level=level,
                code=(str(ground.code),),
                read=(str(ground.shelf),) if is_strict else (),
                write=(str(ground.work),) if is_strict else (),
                has_proc=True,
            ),
            worker=WorkerPlan(
                tool=f"attempts.{module}:{name}",
                level=level,
                filter=program_for(level, may_spawn=may_spawn),
                packages=(str(ground.code),),
                read=(str(ground.shelf),) if is_strict else (),
                write=write,
                may_spawn=may_spawn,
                memory_by=memory_by(level, may_spawn=may_spawn),
                limits=ResourceLimits(
                    memory_bytes=MEMORY_BYTES,
                    processes=PROCESSES,
                    open_files=OPEN_FILES,
                    cpu_s=cpu_s,
                    scratch_bytes=16 << 20,
                    scratch_files=1000,
                ),
            ),
        )
        key = Key(f"{module}:{name}", level, stage.name if stage else "")
        self._pool.admit(key, made)
        return key

    @contextlib.asynccontextmanager
    async def _beside(
        self, attempt: Attempt, level: Isolation, stage: Stage, arguments: dict[str, Any]
    ) -> AsyncIterator[list[Reply]]:
        """Another call, for attempts on one."""
        replies: list[Reply] = []
        if attempt.name == "read_paths_of_other_calls_in_own_memory":
            await self._plant(level, stage)
        if attempt.name not in COMPANIONS:
            yield replies
            return
        module, name = COMPANIONS[attempt.name]
        key = self._key(module, name, level, stage, None)
        request = json.dumps({"arguments": _companion(module, name, stage, arguments)}).encode()
        running = asyncio.ensure_future(self._pool.run(key, request, 5.0, OUTPUT_BYTES))
        await asyncio.to_thread(_wait_for_mark, stage, running)
        if "companion_pid" in inspect.signature(attempt.function).parameters:
            arguments["companion_pid"] = next(iter(stage.left()), 0)
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
        other = Stage(self._ground, is_control=False)
        with other.cleanup:
            key = self._key("results", "sound", level, other, None)
            recipe = self._pool._recipes[key]
            narrowed = replace(recipe, worker=replace(recipe.worker, read=(str(file),)))
            planted = Key("planted", level, stage.name)
            self._pool.admit(planted, narrowed)
            await self._pool.run(planted, b'{"arguments":{}}', 5.0, OUTPUT_BYTES)

    async def _unsound(self, attempt: Attempt, level: Isolation, reply: Reply | ToolkeepError) -> list[str]:
        """Whether the host came out of it well."""
        if not attempt.endings:
            return []
        found = [] if _ending(reply) in attempt.endings else [f"ended as {_ending(reply)}"]
        next_one = await self._pool.run(
            self._key("results", "sound", level, None, None), b'{"arguments":{}}', 10.0, OUTPUT_BYTES
        )
        if next_one != Reply(Ending.OK, value="sound"):
            found.append("the next call was not served")
        return found

    # --- unconfined --------------------------------------------------------------------------

    def control(self, attempt: Attempt) -> dict[str, Any]:
        """The same attempt with nothing around it."""
        stage = Stage(self._ground, is_control=True)
        with stage.cleanup:
            arguments = stage.lay_out(list(inspect.signature(attempt.function).parameters))
            beside = self._control_beside(attempt, stage, arguments)
            heard = naive.listen(
                self._ground.code,
                attempt.module,
                attempt.name,
                arguments,
                attempt.deadline_s,
                to_the_end=bool(attempt.endings) and attempt.breaks == "host-sound",
                env={"PLANTED": f"{stage.planted()}{stage.secret}"},
            )
            said = json.dumps(heard.value())
            seen = self._seen(stage, arguments, said, 0.0)
            if attempt.breaks == "host-sound":
                seen += heard.harm()
            if beside is not None and beside.wait() == 0:
                seen.append("hit")
            naive.end(heard.process, stage.left())
            return {"seen": seen, "said": said[:200]}

    def _control_beside(self, attempt: Attempt, stage: Stage, arguments: dict[str, Any]) -> Any:
        if attempt.name not in COMPANIONS:
            return None
        module, name = COMPANIONS[attempt.name]
        return naive.beside(
            self._ground.code, module, name, _companion(module, name, stage, arguments), stage, arguments
        )

    # --- verdicts ----------------------------------------------------------------------------

    def _seen(self, stage: Stage, arguments: dict[str, Any], said: str, gone_s: float) -> list[str]:
        """Every sign that something got out."""
        wanted = [value for name, value in arguments.items() if name.startswith("more_")]
        value = _value(said)
        is_number = isinstance(value, int) and not isinstance(value, bool)
        secrets_out = (stage.secret, str(stage.written_at), self._ground.secret)
        has_mark = "mark" in arguments
        signs = {
            "leaked": any(secret in said for secret in secrets_out),
            "changed": stage.fingerprint() != stage.before,
            "connected": bool(stage.heard) or _hears(stage),
            "hit": stage.is_victim_touched(),
            "left": has_mark and bool(stage.left_after(gone_s)),
            "trapped": bool(stage.traps()),
            "done": value == "done",
            "more": is_number and bool(wanted) and value >= wanted[0],
        }
        return [sign for sign, is_seen in signs.items() if is_seen]


def _wait_for_mark(stage: Stage, running: "asyncio.Future[Reply]") -> None:
    while not running.done() and not stage.left():
        time.sleep(0.01)


def _hears(stage: Stage) -> bool:
    """Give a listener that was reached the time to notice."""
    if not stage.has_listener:
        return False
    end = time.monotonic() + 0.1
    while not stage.heard and time.monotonic() < end:
        time.sleep(0.01)
    return bool(stage.heard)


def _companion(module: str, name: str, stage: Stage, arguments: dict[str, Any]) -> dict[str, Any]:
    baits = {
        "mark": stage.mark_text,
        "text": stage.secret,
        "folder": arguments.get("others_scratch"),
        "meeting_port": arguments.get("meeting_port"),
    }
    found = importlib.import_module(f"tests.hostile.sandbox.attempts.{module}")
    return {wanted: baits[wanted] for wanted in inspect.signature(getattr(found, name)).parameters}


def _value(said: str) -> Any:
    with contextlib.suppress(ValueError):
        return json.loads(said)
    return None


def _said(reply: Reply | ToolkeepError) -> str:
    if isinstance(reply, ToolkeepError):
        return reply.message
    value = reply.value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    try:
        return json.dumps(value) if reply.ending is Ending.OK else reply.text
    except RecursionError:
        return ""


def _ending(reply: Reply | ToolkeepError) -> str:
    """How the call ended; `refused` where the stage after the sandbox would not take the value."""
    if isinstance(reply, ToolkeepError):
        return type(reply).__name__
    if reply.ending is Ending.OK and not isinstance(reply.value, bytes):
        try:
            canonical_bytes(_plain(reply.value))
        except (TypeError, ValueError, RecursionError, OverflowError):
            return "refused"
    return reply.ending.value


def laid_ground(top: Path) -> Ground:
    """The folders that all attempts of this host share."""
    ground = Ground(top, os.environ.get("ESCAPE_SECRET") or secrets.token_hex(8))
    for folder in (ground.work, ground.shelf, ground.code.parent):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
    shutil.copytree(
        HERE / "attempts", ground.code, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
    )
    held = top / "held"
    held.write_text(ground.secret)
    os.set_inheritable(os.open(held, os.O_RDONLY), True)
    return ground


async def main(kind: str, top: str, only: str) -> None:
    """Run everything and print it."""
    ground = laid_ground(Path(top))
    who = "root" if os.geteuid() == 0 else "ordinary"
    pool = Pool(PoolSize(warm_per_key=0))
    host = Host(ground, pool)
    try:
        for attempt in declared(kind).values():
            if attempt.only_for in ("", who) and only in attempt.name:
                _tell(attempt, "control", await asyncio.to_thread(host.control, attempt))
                for level in levels_of(attempt):
                    _tell(attempt, level.value, await host.confined(attempt, level))
    finally:
        await pool.close()


def _tell(attempt: Attempt, level: str, found: dict[str, Any]) -> None:
    print(json.dumps({"attempt": attempt.name, "level": level, **found}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3] if sys.argv[3:] else ""))
