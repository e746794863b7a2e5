"""`toolkeep doctor --identity`: what is right and wrong with each identity provider of the configuration."""

import asyncio
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from toolkeep.cli.options import print_json, say
from toolkeep.cli.progress import progress
from toolkeep.config.identity_settings import Issuer
from toolkeep.config.settings import Settings
from toolkeep.keep.keep import KNOWN_AGENTS
from toolkeep.keep.open import open_state, project_folder, read_configuration
from toolkeep.text.display import visible

if TYPE_CHECKING:
    from toolkeep.server.oidc.provider_check import Finding

_MARKS: Final = {"good": ("✓", "green"), "wrong": ("✗", "red"), "unsure": ("?", "yellow")}
_INSTALL: Final = "pip install 'toolkeep[identity]'"


def report_identity(*, as_json: bool) -> bool:
    """Check all providers and print what was found; False if something is wrong."""
    root = project_folder()
    settings = read_configuration(root, open_state(root))
    held_back = [file.why_held_back for file in settings.files if not file.counts]
    issuers = settings.identity.issuers if settings.identity else ()
    is_installed = find_spec("joserfc") is not None
    found = dict[str, list["Finding"]]()
    if is_installed and issuers:
        with progress("Asking the identity providers"):
            found = asyncio.run(_check(issuers, settings))
    if as_json:
        print_json(_data(issuers, found, held_back, is_installed=is_installed))
    else:
        _print(issuers, found, held_back, is_installed=is_installed)
    is_good = all(one.state != "wrong" for findings in found.values() for one in findings)
    return is_good and not held_back and (is_installed or not issuers)


async def _check(issuers: tuple[Issuer, ...], settings: Settings) -> "dict[str, list[Finding]]":
    from toolkeep.server.oidc.provider_check import check_provider

    agents = {*KNOWN_AGENTS, *settings.agents}
    has_others = sum(one.page is not None for one in issuers) > 1
    # At once: one that is away takes ten seconds.
    found = await asyncio.gather(*(check_provider(one, agents, has_others=has_others) for one in issuers))
    return {one.issuer: findings for one, findings in zip(issuers, found, strict=True)}


def _data(
    issuers: tuple[Issuer, ...],
    found: "dict[str, list[Finding]]",
    held_back: list[str],
    *,
    is_installed: bool,
) -> dict[str, Any]:
    return {
        "installed": is_installed,
        "held_back": held_back,
        "issuers": [
            {
                "issuer": one.issuer,
                "redirect_uri": _addresses(one)[0] if one.page else None,
                "logout_uri": _addresses(one)[1] if one.page else None,
                "checks": [
                    {"name": check.name, "state": check.state, "reason": check.reason, "remedy": check.remedy}
                    for check in found.get(one.issuer, ())
                ],
            }
            for one in issuers
        ],
    }


def _addresses(issuer: Issuer) -> tuple[str, str]:
    """The addresses to register at the provider: for sign-in and for back-channel logout."""
    url = urlsplit(issuer.audience)
    base = f"{url.scheme}://{url.netloc}" if url.scheme and url.netloc else "https://HOST"
    return f"{base}/ui/sign-in", f"{base}/ui/back-channel-logout"


def _print(
    issuers: tuple[Issuer, ...],
    found: "dict[str, list[Finding]]",
    held_back: list[str],
    *,
    is_installed: bool,
) -> None:
    for reason in held_back:
        say(f" {reason}", "      hint: toolkeep accept", label="  ✗", color="red")
    if not issuers:
        say("The configuration names no identity provider: `identity.issuers`.")
    elif not is_installed:
        say(" joserfc is not installed", f"      hint: {_INSTALL}", label="  ✗", color="red")
    for issuer in issuers if is_installed else ():
        say(visible(issuer.issuer))
        for one in found[issuer.issuer]:
            mark, color = _MARKS[one.state]
            say(f" {one.name}", label=f"  {mark}", color=color)
            if one.reason:
                say(f"      {visible(one.reason)}", f"      hint: {visible(one.remedy)}")
        if issuer.page is not None:
            redirect, logout = _addresses(issuer)
            say("    Register at the provider, exactly:")
            say(
                f"      redirect URI: {visible(redirect)}",
                f"      back-channel logout URI: {visible(logout)}",
            )
