"""`toolkeep worker`: run calls for servers on other machines."""

import asyncio
import os
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolkeep.cli.options import common, print_json, project, say, say_done
from toolkeep.errors import Code, ToolkeepError

if TYPE_CHECKING:
    from toolkeep.config.fleet_settings import WorkerSettings
    from toolkeep.fleet.identity import PrivateKey
    from toolkeep.keep.keep import Keep


@click.command("worker")
@click.option("--nats", "servers", multiple=True, metavar="URL", help="Address of NATS; repeatable.")
@click.option(
    "--label", "labels", multiple=True, metavar="LABEL", help="What servers choose it by; repeatable."
)
@click.option("--trust", "trusted", multiple=True, metavar="KEY", help="Key of a server; repeatable.")
@click.option("--slots", type=click.IntRange(1, 10_000), help="How many calls run at once.  [default: cores]")
@click.option("--show-key", is_flag=True, help="Print the key of this worker, for `fleet.workers`, and end.")
@project
@common
def command(
    *,
    servers: tuple[str, ...],
    labels: tuple[str, ...],
    trusted: tuple[str, ...],
    slots: int | None,
    show_key: bool,
    project: Path | None,
    as_json: bool,
) -> None:
    """Run calls that servers elsewhere have decided and recorded, in the sandbox of this machine.

    It has the tools of its project, and runs them for the servers whose keys it trusts, inside what the
    configuration lets them ask for. On SIGTERM it takes no new calls, and stops once those that run ended.
    """
    from toolkeep.cli.tool_selection import keep_with
    from toolkeep.config.fleet_settings import WorkerSettings
    from toolkeep.fleet.identity import load_key
    from toolkeep.keep.open import open_state, project_folder, read_configuration
    from toolkeep.mcp_server.serve_http import run

    root = project_folder(project)
    state = open_state(root)
    if state is None:
        raise ToolkeepError(Code.STATE_UNUSABLE, "a worker needs a home directory", hint="set HOME")
    key = load_key(Path(state.folder) / "fleet" / "worker.key")
    if show_key:
        public = key.public
        print_json({"key": public.text, "subject": public.token}) if as_json else say(public.text)
        return
    with keep_with(project=project) as keep:  # says why the configuration is not in effect
        configured = read_configuration(root, state).worker or WorkerSettings()
        settings = _settings(configured, servers, labels, trusted, slots)
        say_done(f"worker {key.public.text}")
        run(_serve(keep, settings, key))


def _settings(
    known: "WorkerSettings",
    servers: tuple[str, ...],
    labels: tuple[str, ...],
    trusted: tuple[str, ...],
    slots: int | None,
) -> "WorkerSettings":
    """The options of the command over the configuration."""
    from msgspec.structs import replace

    from toolkeep.config.fleet_settings import TrustedServer

    nats = replace(known.nats, servers=servers) if servers else known.nats
    if not nats.servers:
        hint = "say --nats nats://HOST:4222, or set worker.nats in the configuration"
        raise ToolkeepError(Code.CONFIGURATION_INVALID, "no address of NATS is known", hint=hint)
    configured = {one.key for one in known.servers}
    named = (TrustedServer(key=key) for key in trusted if key not in configured)
    all_trusted = (*known.servers, *named)
    if not all_trusted:
        hint = "say --trust KEY, which `toolkeep fleet key` prints on the server, or set worker.servers"
        raise ToolkeepError(Code.CONFIGURATION_INVALID, "no server is trusted", hint=hint)
    slots = slots or known.slots or os.cpu_count() or 1
    return replace(known, nats=nats, servers=all_trusted, labels=labels or known.labels, slots=slots)


async def _serve(keep: "Keep", settings: "WorkerSettings", key: "PrivateKey") -> None:
    from toolkeep.fleet_worker.worker import Worker

    worker = Worker(keep, settings, key, await _levels())
    loop, stopping = asyncio.get_running_loop(), set[asyncio.Task[None]]()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: stopping.add(loop.create_task(worker.stop())))
    await worker.run()


async def _levels() -> tuple[str, ...]:
    """Isolation levels that this machine shows."""
    from toolkeep.execution.isolation_check import IsolationCheck
    from toolkeep.sandbox.isolation_levels import Isolation

    machine = IsolationCheck()
    levels = (Isolation.STANDARD, Isolation.STRICT, Isolation.RESTRICTED) if sys.platform == "linux" else ()
    found = [level.value for level in levels if (await machine.findings(level)).is_available(level)]
    return (*found, *(("wasm",) if find_spec("wasmtime") else ()))
