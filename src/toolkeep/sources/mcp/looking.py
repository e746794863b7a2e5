"""A first look at a server, for the person who would take it over: which tools it has.

It is started with what the person grants, and ended at once.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from toolkeep.errors import ImportRefused
from toolkeep.execution.hiding import Secret
from toolkeep.execution.machine import Machine
from toolkeep.execution.residence import recipe, residence_of
from toolkeep.execution.staying import Staying
from toolkeep.network.hosts import HostScope, read_url
from toolkeep.network.reaching import HostReach
from toolkeep.sandbox.pool import Pool
from toolkeep.sandbox.trusted import TrustedPaths
from toolkeep.sources.mcp.filling import Filling
from toolkeep.sources.mcp.http_session import Access
from toolkeep.sources.mcp.listing import Listing
from toolkeep.sources.mcp.provider import capabilities_of
from toolkeep.sources.mcp.speaking import UpstreamFailed
from toolkeep.sources.mcp.talk import BEGIN_SECONDS, Talk, start_by_http, start_by_lines
from toolkeep.sources.oauth.access import SigningIn
from toolkeep.wording import visible_lines


async def look(
    entry: Mapping[str, Any], base: str, secret: Secret, trusted: TrustedPaths, access: Access | None = None
) -> Listing:
    """What a server lists; `ImportRefused` says why nothing. With `access`, a person may take their time."""
    pool = Pool()
    shown = str(entry.get("url") or " ".join(entry.get("command") or ()))
    try:
        talk = await _begun(entry, base, secret, trusted, pool, access)
        try:
            return Listing(server=talk.conversation.server, tools=tuple(talk.tools))
        finally:
            await talk.close()
    except UpstreamFailed as failed:
        said = f"; it wrote:\n{visible_lines(failed.last_words)}" if failed.last_words else ""
        hint = _URL_HINT if "url" in entry else _file_hint(entry, base) or _PROGRAM_HINT
        raise ImportRefused(
            shown, f"is no server that can be used: {failed.reason}{said}", hint=hint
        ) from failed
    except ValueError as error:
        raise ImportRefused(shown, str(error), hint=_file_hint(entry, base) or _MISSING_HINT) from error
    finally:
        await pool.close()


_PROGRAM_HINT: Final = "grant what it needs: --capability fs.read:FOLDER, --code FOLDER, --env NAME"
_URL_HINT: Final = (
    "see that it is up, and give what it asks for: --header, --sign-in; "
    "a server of this machine is added as a program: -- COMMAND"
)
_MISSING_HINT: Final = "name a program that is there, or an address that begins with https://"


def _file_hint(entry: Mapping[str, Any], base: str) -> str:
    """Where a word names a file of the project, but not as one: a program starts in a folder of its own."""
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
) -> Talk:
    protocol, filling = str(entry.get("protocol") or ""), Filling(secret)
    if "url" in entry:
        host = read_url(str(entry["url"]))
        headers = filling.headers(entry.get("headers") or {})
        hosts = HostReach(writes=(HostScope.read(str(host)),))
        begin_s = BEGIN_SECONDS if access is None else BEGIN_SECONDS + SigningIn.SECONDS
        return await start_by_http(
            str(entry["url"]),
            hosts,
            lambda: headers,
            protocol,
            access,
            secrets=filling.given,
            begin_s=begin_s,
        )
    staying = Staying.read(
        {"argv": list(entry["command"]), **{key: entry.get(key) for key in ("environment", "code")}}
    )
    program = staying.program(base, filling.secret)
    place = residence_of(capabilities_of(entry), program.path, staying.shown(base), trusted, base)
    findings = await Machine().findings(place.level)
    return await start_by_lines(
        pool, recipe(place, findings), program, place.hosts, protocol, secrets=filling.given
    )
