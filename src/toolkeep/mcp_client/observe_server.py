"""Runs an MCP server a few times in a throw-away sandbox, and notes what it asks for.

What an observed server can reach: the system and its own code; what the person named for reading, the
programs and the hosts that they named. Nothing else of theirs: secrets are dummies, and in the place of the
project, of folders among its arguments and of what it may write stand copies of their names, empty files in
memory. Their content is not there, so that it cannot leave in a host name that a person agrees to later.
Other hosts are noted and not contacted. What it lists is not used: the tools are listed anew with the grant.
Calls that the person names are made here too, with the same dummies; their results are not used.

One denial hides the next. So a server is started up to five times: each time it may start the programs, and
finds an empty folder in the place of others, that it asked for before.

A server that notices the observation can behave otherwise. The grant holds all the same.
"""

import asyncio
import contextlib
import os
import re
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from toolkeep.definitions.capability import Capability
from toolkeep.execution.isolation_check import IsolationCheck
from toolkeep.execution.observation.observed_project import ObservedProject
from toolkeep.execution.observation.proposed_grant import Observation
from toolkeep.execution.persistent.confinement import Confinement, confinement_for_grants, worker_recipe
from toolkeep.execution.persistent.egress_port import EgressPort
from toolkeep.execution.persistent.spec import ProcessSpec
from toolkeep.execution.program_lookup import absolute
from toolkeep.mcp_client.packages.package_trees import server_spec
from toolkeep.mcp_client.session import BEGIN_SECONDS, McpSession, connect
from toolkeep.mcp_client.stdio_transport import LINE_BYTES, StdioTransport, exit_failure
from toolkeep.mcp_client.transport import UpstreamFailed
from toolkeep.mcp_client.upstream_provider import capabilities_of
from toolkeep.network.hosts import WEB_PORTS, Host, HostRefused, read_url
from toolkeep.sandbox.errors import SandboxUnavailable
from toolkeep.sandbox.executables import executables
from toolkeep.sandbox.isolation_cure import REMEDIES
from toolkeep.sandbox.isolation_levels import Mechanism
from toolkeep.sandbox.kernel_probe import Findings
from toolkeep.sandbox.persistent_process import PersistentProcess, ProcessExited, Program
from toolkeep.sandbox.plan import Recipe
from toolkeep.sandbox.trusted_paths import TrustedPaths, is_within
from toolkeep.sandbox.worker_pool import Pool

if TYPE_CHECKING:
    from toolkeep.network.egress_proxy import Contact

_ROUNDS: Final = 5
_SECONDS: Final = 60.0
"""No round begins after this."""
_AFTER_SECONDS: Final = 0.5
"""A server may begin its work after it has listed its tools."""
_CALLS_SECONDS: Final = 30.0
"""All calls of one start: browsers and package managers are slow to begin."""
_URL: Final = re.compile(r"https?://[^\s\"'<>]+")
_CONTACTS: Final = 200
_FOLDERS: Final = 20
"""Folders outside the project in whose place an empty one is shown."""
DUMMY: Final = "toolkeep-dummy-secret"
"""In the place of each secret, of a length that servers accept."""


class _Round:
    """What one start of the server brings."""

    def __init__(self) -> None:
        self.named: set[tuple[str, str]] = set()
        self.contacts: set[tuple[str, str, int]] = set()
        self.tools: tuple[dict[str, Any], ...] | None = None
        self.failure = self.last_words = ""
        self.is_cut = False
        self.calls: list[str] = []
        """Why each call failed; empty for one that worked."""

    def fail(self, failed: UpstreamFailed) -> None:
        """Note why it did not list its tools."""
        self.failure, self.last_words = failed.reason, failed.last_words

    def on_named(self, what: str, name: str) -> None:
        if what == "more":
            self.is_cut = True
        else:
            self.named.add((what, name))

    def on_contact(self, contact: "Contact") -> None:
        if contact.is_denied and contact.host and len(self.contacts) < _CONTACTS:
            self.contacts.add((contact.method, contact.host, contact.port))


SampleCall = tuple[str, Mapping[str, Any]]
"""A tool and its arguments."""


async def observe_server(
    entry: Mapping[str, Any], base: str, trusted: TrustedPaths, calls: Sequence[SampleCall] = ()
) -> Observation:
    """Start a server, and make these calls, until it asks for nothing new.

    Raises ValueError and SandboxUnavailable.
    """
    spec = server_spec(entry)
    # Never its secrets: whatever observed code is given, it may keep in what it asks for.
    program = spec.program(base, lambda _: DUMMY)
    held = capabilities_of(entry)
    manifests = _manifests(spec, base)
    # What it may write is shown as a stand-in: an observed server changes nothing.
    given = tuple(one for one in held if one.kind != "fs.write")
    shown = replace(spec, code=(*spec.code, *manifests))
    place = confinement_for_grants(given, program.path, shown, trusted, base)
    data = spec.data(base)
    place = _without_data(place, data, base)
    project = ObservedProject.of(
        base,
        trusted.state,
        code=[path for path in place.code if path not in (*manifests, *data)],
        asked=_paths(spec, program, base, held, calls),
        held=held,
        programs=place.reach.grant.run,
    )
    findings = await IsolationCheck().findings(place.level)
    begin = partial(
        _start,
        program=program,
        place=place,
        protocol=str(entry.get("protocol") or ""),
        begin_s=float(entry.get("start_timeout_s") or BEGIN_SECONDS),
        calls=calls,
    )
    return await _observe(project, place, findings, begin, _addresses(spec, calls))


async def _observe(
    project: ObservedProject,
    place: Confinement,
    findings: Findings,
    begin: "_Begin",
    addresses: frozenset[str],
) -> Observation:
    named: set[tuple[str, str]] = set()
    contacts: set[tuple[str, str, int]] = set()
    runs: set[str] = set()
    folders: set[str] = set()
    started, rounds, needs_nothing, is_cut = time.monotonic(), 0, False, False
    pool = Pool()
    try:
        while True:
            rounds += 1
            recipe = _recipe(project, place, findings, runs, folders)
            one = await begin(pool, recipe)
            named |= one.named
            contacts |= one.contacts
            is_cut |= one.is_cut
            needs_nothing |= rounds == 1 and one.tools is not None
            more = {name for what, name in named if what == "run" and project.may_be_tried(name)} - runs
            others = project.folders_outside(named, _FOLDERS) - folders
            is_late = time.monotonic() - started > _SECONDS
            if rounds == _ROUNDS or is_late or not (more or others):
                break
            runs |= more
            folders |= others
    finally:
        await pool.close()
    return Observation(
        project=project,
        named=frozenset(named),
        contacts=frozenset(contacts),
        addresses=addresses,
        rounds=rounds,
        tools=one.tools,
        needs_nothing=needs_nothing,
        failure=one.failure,
        last_words=one.last_words,
        is_cut=is_cut,
        calls=tuple(one.calls),
    )


_Begin = Callable[[Pool, Recipe], Awaitable[_Round]]


async def _start(
    pool: Pool,
    recipe: Recipe,
    *,
    program: Program,
    place: Confinement,
    protocol: str,
    begin_s: float,
    calls: Sequence[SampleCall],
) -> _Round:
    """Start the server once, ask it for its tools, and make the calls that the person named."""
    found = _Round()
    egress = EgressPort(place.hosts, found.on_contact)
    served: set[str] = set()

    def serve(listeners: Sequence[socket.socket]) -> AbstractAsyncContextManager[object]:
        nonlocal served
        served = {f"127.0.0.1:{one.getsockname()[1]}" for one in listeners}
        return egress.serve(listeners)

    try:
        process = await PersistentProcess.start(
            pool,
            recipe,
            program,
            line_bytes=LINE_BYTES,
            serve=serve if recipe.worker.connects else None,
            on_named=found.on_named,
        )
        transport = StdioTransport(process)
        try:
            session = await connect(transport, egress, protocol, begin_s)
        except UpstreamFailed as failed:
            failed.last_words = failed.last_words or transport.last_words
            raise
        found.tools = tuple(session.tools)
        found.calls = await _make_calls(session, calls)
        await asyncio.sleep(_AFTER_SECONDS)
        await session.close()
    except ProcessExited as over:
        found.fail(exit_failure(over))
    except UpstreamFailed as failed:
        found.fail(failed)
    found.named -= {("connect", one) for one in served}
    return found


async def _make_calls(session: McpSession, calls: Sequence[SampleCall]) -> list[str]:
    """Make the calls in order; why each failed. A denial often fails one, and the next round goes further."""
    reasons: list[str] = []
    try:
        async with asyncio.timeout(_CALLS_SECONDS):
            for tool, arguments in calls:
                try:
                    params = {"name": tool, "arguments": dict(arguments)}
                    result = await session.client.call("tools/call", params)
                    reasons.append(_words(result) or "no reason given" if result.get("isError") else "")
                except UpstreamFailed as failed:
                    reasons.append(failed.reason)
    except TimeoutError:
        reasons += [f"no answer within {_CALLS_SECONDS:.0f} s"] * (len(calls) - len(reasons))
    return reasons


def _words(result: Mapping[str, Any]) -> str:
    parts = result.get("content")
    texts = [part.get("text") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    return " ".join(str(text) for text in texts if text)


def _recipe(
    project: ObservedProject,
    place: Confinement,
    findings: Findings,
    runs: Iterable[str],
    folders: Iterable[str],
) -> Recipe:
    # A way out also without a granted host: its proxy is what notes the hosts.
    place = place._replace(reach=place.reach._replace(connects=findings.has_hosts))
    made = worker_recipe(place, findings, unobserved=(*project.system, *project.code))
    if made.worker.supervisor is None:
        raise SandboxUnavailable(
            made.worker.level,
            missing=["seccomp-supervisor is missing (needed to observe)"],
            hint=REMEDIES[Mechanism.SECCOMP_SUPERVISOR],
        )
    stand_ins = project.stand_ins(folders)
    programs = {found for program in runs for found in executables(program)}
    grant = replace(made.grant, write=stand_ins, run=tuple(sorted({*made.grant.run, *programs})))
    zygote = replace(
        made.zygote, stand_ins=stand_ins, unlisted=tuple(sorted({*project.unlisted(), *folders}))
    )
    # With ports it gets a name server too, which notes the hosts that it looks up without the proxy.
    ports = made.worker.ports or tuple(sorted(WEB_PORTS)) if findings.has_hosts else ()
    worker = replace(made.worker, ports=ports)
    return Recipe(zygote=zygote, worker=worker, grant=grant)


def _without_data(place: Confinement, data: tuple[str, ...], base: str) -> Confinement:
    """Without the databases among its arguments that lie in the project: a stand-in takes their place."""
    root = os.path.realpath(base)
    kept = (path for path in place.code if path not in data or not is_within(path, root))
    return place._replace(code=tuple(kept))


def _manifests(spec: ProcessSpec, base: str) -> list[str]:
    """The package.json files above its code in the project: Node.js does not start with an empty one."""
    found: list[str] = []
    for word in spec.argv[1:]:
        path = Path(absolute(word, base)).resolve()
        if path.is_relative_to(base) and path.is_file():
            above = (folder / "package.json" for folder in path.parents if folder.is_relative_to(base))
            found += [str(manifest) for manifest in above if manifest.is_file() and not manifest.is_symlink()]
    return found


def _paths(
    spec: ProcessSpec,
    program: Program,
    base: str,
    held: Iterable[Capability],
    calls: Sequence[SampleCall],
) -> tuple[str, ...]:
    """Real paths that the person wrote: in the command, in variables, in calls, and to be written."""
    texts = [absolute(word.rpartition("=")[2], base) for word in program.argv[1:]]
    texts += [text for _, text in spec.environment]
    texts += [text.removeprefix("file://") for _, arguments in calls for text in _texts(arguments)]
    texts += [str(Path(base, Path(one.scope).expanduser())) for one in held if one.kind == "fs.write"]
    return tuple(dict.fromkeys(os.path.realpath(text) for text in texts if text.startswith("/")))


def _addresses(spec: ProcessSpec, calls: Sequence[SampleCall]) -> frozenset[str]:
    """Hosts with their ports that the person wrote in a URL: in the command, in variables and in calls."""
    texts = [*spec.argv, *(text for _, text in spec.environment)]
    texts += [text for _, arguments in calls for text in _texts(arguments)]
    found: set[str] = set()
    for url in (match for text in texts for match in _URL.findall(text)):
        with contextlib.suppress(HostRefused):
            host = read_url(url)
            found.add(str(Host(host.name, host.port, "", host.is_address)))
    return frozenset(found)


def _texts(value: Any) -> Iterator[str]:
    """Every text in the arguments of a call."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (text for one in value.values() for text in _texts(one))
    elif isinstance(value, list):
        yield from (text for one in value for text in _texts(one))
