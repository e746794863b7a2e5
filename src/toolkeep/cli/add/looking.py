"""What a server lists, for a person who wants to see it. It is started or asked, with what its entry says."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolkeep.assembly import open_state, read_configuration, trusted_files
from toolkeep.cli.add.signing import secrets_of
from toolkeep.sandbox.trusted import TrustedPaths, resolved
from toolkeep.sources.mcp.http_session import Access
from toolkeep.sources.mcp.listing import Listing
from toolkeep.sources.mcp.looking import look
from toolkeep.storage.folder import protected_folder


def listed_by(root: Path, entry: dict[str, Any], given: Mapping[str, str], access: Access | None) -> Listing:
    """The list of a server; `given` are secrets for this one look. Whoever asks must have had consent."""
    state = open_state(root)
    files = resolved(trusted_files(read_configuration(root, state)))
    hidden = str(protected_folder(state.folder)) if state else ""
    trusted = TrustedPaths(hidden, files=lambda: [files])
    secrets = secrets_of(entry)

    def secret(wanted: str) -> str:
        return given[wanted] if wanted in given else secrets[wanted]

    return asyncio.run(look(entry, str(root), secret, trusted, access))
