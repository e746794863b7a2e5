"""`toolkeep fleet`: the workers on other machines, and the key that they know this server by."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from toolkeep.cli.options import common, print_json, project, say, say_done
from toolkeep.cli.tables import Column, say_table
from toolkeep.errors import Code, ToolkeepError

if TYPE_CHECKING:
    from toolkeep.config.fleet_settings import FleetSettings
    from toolkeep.fleet.identity import PrivateKey
    from toolkeep.fleet.worker_status import WorkerStatus
    from toolkeep.storage.sqlite.state_db import KeepState

_WAIT_SECONDS: Final = 2.0
"""A worker announces itself once a second."""
_COLUMNS: Final = (
    Column("NAME", 8),
    Column("STATE"),
    Column("FREE"),
    Column("LABELS", 8, is_optional=True),
    Column("LEVELS", 8, is_optional=True),
    Column("VERSION", is_optional=True),
    Column("SEEN"),
    Column("TOOLS"),
    Column("WHY", 12),
)


@click.group("fleet")
def command() -> None:
    """See the workers on other machines, and restore one."""


@command.command("status", short_help="Show which workers are there.")
@project
@common
def status_command(project: Path | None, *, as_json: bool) -> None:
    """Show the trusted workers: what each may run, how busy it is, and why one is refused.

    It connects as this server does, and waits up to two seconds for workers. The page of a running server,
    and `/v1/workers`, show the calls that it has there, too.
    """
    import asyncio

    import msgspec

    from toolkeep.fleet.worker_status import quarantined
    from toolkeep.keep.open import registry_state, server_key
    from toolkeep.stores.registry_state import quarantined_workers

    root, settings, state = _opened(project)
    with registry_state(root) as switches:
        out = quarantined_workers(switches.switches())
        if problem := switches.problem():
            raise ToolkeepError(Code.STORE_UNAVAILABLE, problem, hint="start the shared database")
    found = asyncio.run(_status(settings, server_key(state)))
    workers = [quarantined(one) if one.key in out else one for one in found]
    if as_json:
        print_json([msgspec.to_builtins(one) for one in workers])
        return
    say_table(_COLUMNS, [_row(one) for one in workers])


def _opened(project: Path | None) -> "tuple[Path, FleetSettings, KeepState]":
    from toolkeep.keep.open import open_state, project_folder, read_configuration

    root = project_folder(project)
    state = open_state(root)
    settings = read_configuration(root, state).fleet
    if settings is None or state is None:
        hint = "name workers under fleet: in .agent/config.yml, and accept it with `toolkeep accept`"
        raise ToolkeepError(Code.CONFIGURATION_INVALID, "no workers are configured here", hint=hint)
    return root, settings, state


@command.command("restore")
@click.argument("name")
@project
@common
def restore_command(name: str, project: Path | None, *, as_json: bool) -> None:
    """Let the quarantined worker NAME take calls again.

    It counts within a second in every running server, also in others that share the database. Find out first
    why its results differed: WorkersDisagreed in the audit log names the call.
    """
    from toolkeep.keep.open import registry_state
    from toolkeep.stores.registry_state import worker_switch

    root, settings, _ = _opened(project)
    keys = [worker.key for worker in settings.workers if worker.name == name]
    if not keys:
        hint = "see: toolkeep fleet status"
        raise ToolkeepError(Code.CONFIGURATION_INVALID, f"no worker is called {name!r}", hint=hint)
    with registry_state(root) as switches:
        for key in keys:
            switches.put_switch(worker_switch(key), enabled=True)
    if as_json:
        print_json({"worker": name, "keys": keys})
    else:
        say_done(f"worker {name} takes calls again")


async def _status(settings: "FleetSettings", key: "PrivateKey") -> "tuple[WorkerStatus, ...]":
    """What workers answer within two seconds; a frame that is refused is told as why."""
    import asyncio
    import contextlib

    from msgspec.structs import replace

    from toolkeep.fleet.dispatcher import Dispatcher, Refused

    refused: dict[str, str] = {}

    def note(frame: "Refused") -> None:
        refused[frame.worker] = frame.reason

    def ignore(*_: object) -> None:
        """The server records it."""

    dispatcher = Dispatcher(
        settings, key, refused=note, late=ignore, signed=ignore, refused_elsewhere=lambda _: 0
    )
    await dispatcher.start()
    try:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(dispatcher.wait_for_all(), _WAIT_SECONDS)
        return tuple(
            replace(one, why=refused[one.name]) if one.state == "not seen" and one.name in refused else one
            for one in dispatcher.status()
        )
    finally:
        await dispatcher.close()


def _row(one: "WorkerStatus") -> tuple[str, ...]:
    seen = "never" if one.seen_s is None else f"{one.seen_s:.0f} s ago"
    free = f"{one.free} of {one.slots}" if one.slots else ""
    tools = str(len(one.tools)) if one.tools else ""
    words = (", ".join(one.labels), ", ".join(one.levels), one.version, seen, tools)
    return (one.name, one.state, free, *words, one.why)


@command.command("key")
@project
@common
def key_command(project: Path | None, *, as_json: bool) -> None:
    """Print the key of this server, which workers must trust."""
    from toolkeep.keep.open import open_state, project_folder, server_key

    state = open_state(project_folder(project))
    if state is None:
        raise ToolkeepError(Code.STATE_UNUSABLE, "a server needs a home directory", hint="set HOME")
    key = server_key(state).public
    if as_json:
        print_json({"key": key.text, "subject": key.token})
    else:
        say(key.text)
