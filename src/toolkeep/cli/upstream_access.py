"""Access to an upstream MCP server while a person is present: OAuth sign-in, secrets, tool listing."""

import asyncio
import contextlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from toolkeep.cli.options import say
from toolkeep.cli.progress import progress
from toolkeep.config.settings import SecretSource, Settings
from toolkeep.errors import ImportRefused, SignInFailed, StateUnusable
from toolkeep.keep.open import (
    check_accepted,
    offered_by_project,
    open_state,
    read_configuration,
    sign_ins_of,
    trusted_files,
)
from toolkeep.mcp_client.http_session import Access
from toolkeep.mcp_client.inspect_server import inspect_mcp_server
from toolkeep.mcp_client.oauth.client_registration import OAuthSettings
from toolkeep.mcp_client.oauth.credentials import ClientCredentials, InteractiveSignIn, StoredCredentials
from toolkeep.mcp_client.packages.package_trees import with_program
from toolkeep.mcp_client.packages.pinned_packages import PinnedPackages
from toolkeep.mcp_client.pinned_tools import PinnedTools
from toolkeep.mcp_client.transport import UpstreamFailed
from toolkeep.mcp_client.upstream_provider import McpProvider
from toolkeep.sandbox.trusted_paths import TrustedPaths, resolved
from toolkeep.sources.secret_sources import UpstreamSecrets
from toolkeep.storage.atomic_files import write_whole
from toolkeep.storage.state_folder import make_private, protected_folder
from toolkeep.stores.sign_ins import SignInStore
from toolkeep.text.display import visible

_SECRET_NAME = "client_secret"  # noqa: S105 -- the name of one


def add_oauth(
    entry: dict[str, Any],
    client_id: str | None,
    client_secret: str | None,
    issuer: str | None,
    *,
    is_signed_in: bool,
) -> None:
    """Add OAuth settings to a configuration entry, if given."""
    told: dict[str, str] = {}
    if client_id:
        told["client_id"] = client_id
    if issuer:
        told["issuer"] = issuer
    if client_secret:
        told["client_secret"] = _SECRET_NAME
        entry["secrets"] = {**entry.get("secrets", {}), _SECRET_NAME: {"env": client_secret}}
    if client_secret and not is_signed_in:
        told["grant"] = "client_credentials"
    if not told and not is_signed_in:
        return
    if client_secret and not (client_id and issuer):
        raise ImportRefused(
            "--client-secret",
            "would be sent to any authorization server that the server names",
            hint="give --client-id and --issuer",
        )
    if not str(entry.get("url", "")).startswith("https://"):
        raise ImportRefused("--sign-in", "needs a server with an https:// address")
    entry["oauth"] = told


def known_server(root: Path, name: str) -> tuple[dict[str, Any], PinnedTools]:
    """The entry and list of an accepted server: one that a clone brings along is never started."""
    offered = offered_by_project(root)
    for provider in offered.providers:
        if isinstance(provider, McpProvider) and provider.origin == f"mcp:{name}":
            check_accepted(offered.settings, f"would start or contact '{name}'")
            return dict(provider.entry), provider.listing()
    raise ImportRefused(f"'{name}'", "is not an MCP server of this project", hint="add it: toolkeep add mcp")


def access_for(
    root: Path, name: str, entry: dict[str, Any], given: dict[str, str], *, is_signed_in: bool
) -> Access | None:
    """Credentials for listing the tools of a server."""
    if "oauth" not in entry:
        return None
    try:
        if entry["oauth"].get("grant") == "client_credentials":
            return ClientCredentials(entry["url"], client_settings(entry, given))
        if is_signed_in:
            return InteractiveSignIn(entry["url"], client_settings(entry, given), show_sign_in_url)
        return StoredCredentials(name, entry["url"], sign_in_store(root))
    except UpstreamFailed as failed:
        raise SignInFailed(name, failed.reason) from None


def client_settings(entry: dict[str, Any], given: dict[str, str]) -> OAuthSettings:
    """OAuth client settings of an entry, with the client secret."""
    told = entry["oauth"]
    named = told.get("client_secret", "")
    secret = (given.get(named) or secrets_of(entry)[named]) if named else ""
    return OAuthSettings.read(told, secret)


def _stored_folder(root: Path, name: str) -> Path | None:
    state = open_state(root)
    return Path(state.folder) / "secrets" / name if state else None


def store_secrets(root: Path, name: str, values: Mapping[str, str]) -> None:
    """Store the secrets of an upstream in the state: files that only this user reads, and no tool sees."""
    folder = _stored_folder(root, name)
    if folder is None:
        raise StateUnusable("~", "there is no state folder to store secrets in", hint="set TOOLKEEP_HOME")
    for secret, value in values.items():
        make_private(folder)
        write_whole(folder / secret, f"{value}\n".encode())


def forget_secrets(root: Path, name: str) -> None:
    """Remove the stored secrets of an upstream."""
    if (folder := _stored_folder(root, name)) is not None:
        shutil.rmtree(folder, ignore_errors=True)


def secrets_of(entry: dict[str, Any], stored: Path | None = None) -> UpstreamSecrets:
    """The secrets that an entry names, read when needed."""
    sources = {
        secret: SecretSource(kind=kind, where=str(where))
        for secret, source in (entry.get("secrets") or {}).items()
        for kind, where in source.items()
    }
    return UpstreamSecrets(sources, stored)


def sign_in_store(root: Path) -> SignInStore:
    """The store of OAuth tokens; raises `SignInFailed` if there is none."""
    tokens = sign_ins_of(open_state(root))
    if tokens is None:
        raise SignInFailed(
            str(root), "there is no state folder to store a token in", hint="set TOOLKEEP_HOME"
        )
    return tokens


def show_sign_in_url(url: str) -> None:
    """Print the URL to sign in at."""
    say("Open this address in a browser to sign in:", err=True)
    say(f"  {visible(url)}", err=True)


def keep_sign_in(root: Path, name: str, access: Access | None) -> None:
    """Store the tokens of a sign-in."""
    if isinstance(access, InteractiveSignIn) and access.kept is not None:
        sign_in_store(root).put(name, access.kept)


def trusted_paths_of(root: Path) -> tuple[Settings, TrustedPaths]:
    """The configuration of a project, and what no server may write or see."""
    state = open_state(root)
    settings = read_configuration(root, state)
    files = resolved(trusted_files(settings))
    hidden = str(protected_folder(state.folder)) if state else ""
    return settings, TrustedPaths(hidden, files=lambda: [files])


def started_entry(root: Path, entry: dict[str, Any], packages: PinnedPackages | None) -> dict[str, Any]:
    """An entry with the program that was installed for it."""
    state = open_state(root)
    return with_program(entry, packages, state.folder) if state else entry


def list_server_tools(
    root: Path,
    name: str,
    entry: dict[str, Any],
    given: Mapping[str, str],
    access: Access | None,
    packages: PinnedPackages | None = None,
) -> PinnedTools:
    """List the tools of a server; `given` are secrets for this listing. The caller must have consent."""
    settings, trusted = trusted_paths_of(root)
    secrets = secrets_of(entry, _stored_folder(root, name))

    def secret(wanted: str) -> str:
        return given[wanted] if wanted in given else secrets[wanted]

    may_be_unconfined = name in settings.unconfined
    listing = inspect_mcp_server(
        started_entry(root, entry, packages),
        str(root),
        secret,
        trusted,
        access,
        may_be_unconfined=may_be_unconfined,
    )
    # A sign-in prints the address to open, and the person knows what is waited for.
    is_silent = not isinstance(access, InteractiveSignIn)
    with progress("Listing the tools of the server") if is_silent else contextlib.nullcontext():
        found = asyncio.run(listing)
    if found.banner:
        say("! it wrote text to its standard output before its first message, which was skipped:", err=True)
        for line in found.banner:
            say(f"  | {line}", err=True)
    for one in found.denials:
        ask = f"; --capability {one.capability} would allow it" if one.capability else ""
        say(f"! it was denied the {one.kind} {visible(one.subject)}{visible(ask)}", err=True)
    return replace(found.listing, packages=packages)
