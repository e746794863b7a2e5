"""Lists the tools of a server before a person accepts them.

The server is started with exactly the proposed grant, and stopped at once.
"""

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from toolkeep.errors import ImportRefused
from toolkeep.execution.isolation_check import IsolationCheck
from toolkeep.execution.persistent.confinement import confinement_for_grants, worker_recipe
from toolkeep.execution.program_errors import Denial, denials
from toolkeep.execution.redact import Secret
from toolkeep.limits import DEFINITION_FILE_BYTES
from toolkeep.mcp_client.http_session import Access
from toolkeep.mcp_client.item_import import matching
from toolkeep.mcp_client.oauth.credentials import InteractiveSignIn
from toolkeep.mcp_client.packages.package_trees import check_packages, server_spec
from toolkeep.mcp_client.pinned_tools import ListName, PinnedTools
from toolkeep.mcp_client.secret_injection import SecretInjection
from toolkeep.mcp_client.session import BEGIN_SECONDS, McpSession, start_http, start_stdio
from toolkeep.mcp_client.transport import UpstreamFailed
from toolkeep.mcp_client.upstream_provider import capabilities_of
from toolkeep.network.allowlist import HostAllowlist
from toolkeep.network.hosts import HostScope, read_url
from toolkeep.sandbox.trusted_paths import TrustedPaths
from toolkeep.sandbox.worker_pool import Pool
from toolkeep.text.display import visible, visible_lines

if TYPE_CHECKING:
    from toolkeep.network.egress_proxy import Contact


class Inspection(NamedTuple):
    """What a server lists, and what was noticed meanwhile."""

    listing: PinnedTools
    banner: tuple[str, ...] = ()
    """Lines that it wrote to its standard output before its first message."""
    denials: tuple[Denial, ...] = ()
    """What it was denied while it started."""


async def inspect_mcp_server(
    entry: Mapping[str, Any],
    base: str,
    secret: Secret,
    trusted: TrustedPaths,
    access: Access | None = None,
    *,
    may_be_unconfined: bool = False,
) -> Inspection:
    """The tools of a server; raises `ImportRefused`.

    With `access`, a person may sign in and take their time. `may_be_unconfined` says whether an accepted
    configuration lets the server run where this machine cannot confine it.
    """
    pool = Pool()
    contacts: list[Contact] = []
    shown = str(entry.get("url") or " ".join(entry.get("documented") or entry.get("command") or ()))
    try:
        session = await _begun(
            entry, base, secret, trusted, pool, access, contacts, may_be_unconfined=may_be_unconfined
        )
        try:
            listing = await _listed(session, entry)
            return Inspection(listing, session.banner, denials(session.last_words, contacts))
        finally:
            await session.close()
    except UpstreamFailed as failed:
        said = f"; it wrote:\n{visible_lines(failed.last_words)}" if failed.last_words else ""
        denied = denials(failed.last_words, contacts)
        told = "".join(f"; it was denied the {one.kind} {visible(one.subject)}" for one in denied[:_DENIALS])
        raise ImportRefused(
            shown,
            f"cannot be used as a server: {failed.reason}{told}{said}",
            hint=_URL_HINT if "url" in entry else _file_hint(entry, base) or _grant_hint(failed, denied),
        ) from failed
    except ValueError as error:
        raise ImportRefused(shown, str(error), hint=_file_hint(entry, base) or _MISSING_HINT) from error
    finally:
        await pool.close()


async def _listed(session: McpSession, entry: Mapping[str, Any]) -> PinnedTools:
    """The tools of a server, and of the other lists what the entry passes on: no more is pinned."""
    lists: tuple[tuple[ListName, str], ...] = (
        ("prompts", "prompts"),
        ("resources", "resources"),
        ("templates", "resources"),
    )
    passed_on: dict[str, Any] = {
        name: matching(await session.client.list_entries(name), name, entry[key])
        for name, key in lists
        if entry.get(key)
    }
    listing = PinnedTools(server=session.client.server, tools=tuple(session.tools), **passed_on)
    if passed_on and len(listing.to_bytes()) > DEFINITION_FILE_BYTES:
        raise UpstreamFailed(f"what it would pass on has more than {DEFINITION_FILE_BYTES} bytes")
    return listing


_DENIALS: Final = 5
"""Denials that a failure names: the first are those that matter."""
_PROGRAM_HINT: Final = (
    "grant what it needs: --capability fs.read:FOLDER, net.write:HOST:PORT or process.spawn:PROGRAM, "
    "--code FOLDER, --env NAME"
)
_URL_HINT: Final = (
    "check that it is running, and pass what it requires: --header, --sign-in; "
    "name a private server by its address and port, such as http://127.0.0.1:8080/mcp"
)
_MISSING_HINT: Final = "name an installed program, or an address that begins with https://"


def _grant_hint(failed: UpstreamFailed, denied: Iterable[Denial]) -> str:
    """What to grant a program that failed."""
    wanted = list(dict.fromkeys(one.capability for one in denied if one.capability))[:_DENIALS]
    if wanted:
        words = (f"--capability {shlex.quote(visible(one))}" for one in wanted)
        return f"grant it what it needs: {' '.join(words)}"
    return f"give it longer: --start-timeout SECONDS; or {_PROGRAM_HINT}" if failed.is_slow else _PROGRAM_HINT


def _file_hint(entry: Mapping[str, Any], base: str) -> str:
    """Hint for a command word that names a file of the project without `./`.

    The process starts in another folder.
    """
    for word in entry.get("command") or ():
        if not word.startswith(("/", "./", "../", "~/")) and Path(base, word).is_file():
            return f"write ./{word} for the file of the project"
    return ""


async def _begun(
    entry: Mapping[str, Any],
    base: str,
    secret: Secret,
    trusted: TrustedPaths,
    pool: Pool,
    access: Access | None,
    contacts: list["Contact"],
    *,
    may_be_unconfined: bool,
) -> McpSession:
    protocol, injection = str(entry.get("protocol") or ""), SecretInjection(secret)
    begin_s = float(entry.get("start_timeout_s") or BEGIN_SECONDS)
    if "url" in entry:
        host = read_url(str(entry["url"]))
        headers = injection.headers(entry.get("headers") or {})
        hosts = HostAllowlist(writes=(HostScope.of(host, is_named=True),))
        begin_s += 0.0 if access is None else InteractiveSignIn.SECONDS
        return await start_http(
            str(entry["url"]),
            hosts,
            lambda: headers,
            protocol,
            access,
            secrets=injection.given,
            begin_s=begin_s,
        )
    spec = server_spec(entry)
    await check_packages(entry)
    program = spec.program(base, injection.secret)
    place = confinement_for_grants(capabilities_of(entry), program.path, spec, trusted, base)
    findings = await IsolationCheck().findings(place.level)
    is_unconfined = may_be_unconfined and not findings.is_available(place.level)
    recipe = None if is_unconfined else worker_recipe(place, findings)
    return await start_stdio(
        pool,
        recipe,
        program,
        place.hosts,
        protocol,
        secrets=injection.given,
        on_contact=contacts.append,
        begin_s=begin_s,
    )
