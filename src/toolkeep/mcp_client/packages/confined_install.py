"""Runs a package manager confined: it writes one folder, reaches the registry and sees neither home nor keys.

Input: its words, the folder and the registry's addresses, all from the host. Output: what it printed. What it
leaves in the folder comes from the registry and is hostile.
"""

import asyncio
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import msgspec

from toolkeep.definitions.capability import Capability
from toolkeep.definitions.constraints import NetworkBounds
from toolkeep.errors import ImportRefused
from toolkeep.execution.isolation_check import IsolationCheck
from toolkeep.execution.persistent.confinement import confinement_for_grants, worker_recipe
from toolkeep.execution.persistent.spec import ProcessSpec
from toolkeep.limits import MIB
from toolkeep.mcp_client.packages.pinned_packages import PinnedPackages
from toolkeep.network.addresses import AddressClass, classify
from toolkeep.network.allowlist import HostAllowlist
from toolkeep.network.budget import Budget
from toolkeep.network.egress_proxy import EgressProxy
from toolkeep.network.hosts import HostRefused, HostScope, read_url
from toolkeep.sandbox.persistent_process import ExitReason, LineProcess, ProcessExited
from toolkeep.sandbox.plan import SYSTEM
from toolkeep.sandbox.trusted_paths import TrustedPaths
from toolkeep.sandbox.unconfined_process import start_program
from toolkeep.sandbox.worker_pool import Pool
from toolkeep.text.display import visible_lines

_SECONDS: Final = 600.0
_MEMORY_BYTES: Final = 1024 * MIB
"""npm holds the metadata of all packages at once."""
_OUTPUT_BYTES: Final = 4 * MIB
"""The release times of a package with some ten thousand versions."""
_NETWORK: Final = NetworkBounds(max_requests=20_000, max_bytes=2048 * MIB)
"""A request for each package's metadata and one for its archive, for some thousand packages."""


class ProgramFailed(Exception):
    """A package manager did not succeed; `last_words` is the end of what it wrote."""

    def __init__(self, reason: str, last_words: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.last_words = last_words

    def refusal(self, what: str) -> ImportRefused:
        """The error to show."""
        said = f"; it wrote:\n{visible_lines(self.last_words.strip())}" if self.last_words.strip() else ""
        needs = any(word in self.last_words for word in ("E401", "E403", " 401 ", " 403 "))
        hint = "a registry that wants a password cannot be used: none is passed on" if needs else ""
        return ImportRefused(what, f"cannot be installed: {self.reason}{said}", hint=hint)


class Registry(msgspec.Struct, frozen=True, kw_only=True):
    """A package registry as the user configured it, without credentials."""

    urls: tuple[str, ...]
    """The registry itself first; none for no network."""
    files: tuple[str, ...] = ()
    """CA certificates for its TLS, outside the system folders."""

    @property
    def url(self) -> str:
        """Its address."""
        return self.urls[0]


def without_credentials(url: str) -> str:
    """An address without user and password: they never enter the sandbox."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """The packages of a server as a registry resolves them now."""

    pinned: PinnedPackages
    young: tuple[str, ...] = ()
    """Versions that were published too recently, where no older one will do."""
    passed_over: str = ""
    """The newest version, if it was published too recently and an older one is taken."""
    tells_age: bool = True
    """Whether the registry says when versions were published."""


def public_files(path: str) -> tuple[str, ...]:
    """The real path of a file that must be granted; none for one of the system, which everybody sees."""
    real = os.path.realpath(path)
    is_system = any(real == place or real.startswith(f"{place}/") for place in SYSTEM)
    return () if is_system or not Path(real).is_file() else (real,)


class ConfinedInstall:
    """The confinement in which the packages of one server are resolved and installed."""

    def __init__(self, folder: Path, registry: Registry) -> None:
        self.folder = folder
        self.registry = registry
        self._check = IsolationCheck()

    def run(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        *,
        code: Sequence[str] = (),
        spawn: Sequence[str] = (),
        folder: Path | None = None,
    ) -> str:
        """Run a program to its end and return what it printed; raises `ProgramFailed`."""
        try:
            spec = ProcessSpec.read(
                {"argv": list(argv), "environment": dict(environment), "code": list(code)}
            )
            return asyncio.run(self._run(spec, spawn, str(folder or self.folder)))
        except ValueError as error:
            raise ProgramFailed(str(error)) from error

    async def _run(self, spec: ProcessSpec, spawn: Sequence[str], folder: str) -> str:
        base = str(self.folder)
        granted = [f"fs.write:{base}", *(f"fs.read:{file}" for file in self.registry.files)]
        granted += [f"process.spawn:{name}" for name in spawn]
        program = replace(spec.program(base, lambda _: ""), folder=folder)
        place = confinement_for_grants(
            map(Capability.read, granted), program.path, spec, TrustedPaths(), base
        )
        connects = bool(self.registry.urls)
        place = place._replace(reach=place.reach._replace(connects=connects), memory_bytes=_MEMORY_BYTES)
        hosts = HostAllowlist(writes=tuple([await _scope(url) for url in self.registry.urls]))
        recipe = worker_recipe(place, await self._check.findings(place.level))
        pool = Pool()

        def serve(listeners: Sequence[socket.socket]) -> AbstractAsyncContextManager[object]:
            return EgressProxy(listeners, hosts, max_seconds=None, budget=Budget(_NETWORK))

        try:
            async with asyncio.timeout(_SECONDS):
                process = await start_program(pool, recipe, program, line_bytes=_OUTPUT_BYTES, serve=serve)
                try:
                    return await _output(process)
                finally:
                    await process.close()
        except TimeoutError:
            raise ProgramFailed(f"it took longer than {_SECONDS:.0f} s") from None
        finally:
            await pool.close()


async def _output(process: LineProcess) -> str:
    lines: list[bytes] = []
    size = 0
    try:
        while size <= _OUTPUT_BYTES:
            lines.append(await process.line())
            size += len(lines[-1])
    except ProcessExited as over:
        if over.why is ExitReason.ENDED and over.status == 0:
            return b"\n".join(lines).decode(errors="replace")
        words = over.last_words or over.text or b"\n".join(lines[-20:]).decode(errors="replace")
        how = (
            f"it ended with status {over.status}" if over.why is ExitReason.ENDED else f"it {over.why.value}"
        )
        raise ProgramFailed(how, words) from None
    raise ProgramFailed(f"it printed more than {_OUTPUT_BYTES} bytes")


async def _scope(url: str) -> HostScope:
    """The registry's host. A private address counts: the user's own configuration names the registry."""
    host = read_url(url)
    if host.is_address:
        return HostScope.of(host, is_named=True)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host.name, host.port, type=socket.SOCK_STREAM)
    except OSError:
        raise HostRefused(f"the registry's host {host} is not known") from None
    inner = (AddressClass.PRIVATE, AddressClass.LOOPBACK)
    private = sorted({str(entry[4][0]) for entry in found if classify(str(entry[4][0])) in inner})
    leads_to = f"={private[0]}" if private else ""
    return HostScope.read_grant(f"{host.name}:{host.port}{leads_to}")
