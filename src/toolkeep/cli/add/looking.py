"""What a server lists, for a person who wants to see it. It is started or asked, with what its entry says."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolkeep.assembly import open_state
from toolkeep.config.settings import SecretSource
from toolkeep.sources.mcp.listing import Listing
from toolkeep.sources.mcp.looking import look
from toolkeep.sources.secrets import UpstreamSecrets
from toolkeep.storage.folder import protected_folder


def listed_by(root: Path, entry: Mapping[str, Any], given: Mapping[str, str] | None = None) -> Listing:
    """The list of a server; `given` are secrets for this one look. Whoever asks must have had consent."""
    state = open_state(root)
    hidden = str(protected_folder(state.folder)) if state else ""
    sources = {
        secret: SecretSource(kind=kind, where=str(where))
        for secret, source in (entry.get("secrets") or {}).items()
        for kind, where in source.items()
    }
    secrets, known = UpstreamSecrets(sources), given or {}

    def secret(wanted: str) -> str:
        return known[wanted] if wanted in known else secrets[wanted]

    return asyncio.run(look(entry, str(root), secret, hidden))
