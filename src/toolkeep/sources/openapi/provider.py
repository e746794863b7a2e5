"""The provider of an upstream with an OpenAPI document: its operations, each a tool or skipped by name."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from toolkeep.config.settings import ConfiguredUpstream, Run
from toolkeep.definitions.roles import read_roles
from toolkeep.definitions.vocabulary import Danger
from toolkeep.errors import FileUnreadable
from toolkeep.registry.given import Offer
from toolkeep.sources.openapi.document import load_document
from toolkeep.sources.openapi.importing import Import, Wishes, import_document, refused_offer
from toolkeep.sources.secrets import UpstreamSecrets

Taken = Callable[[], Iterable[str]]
"""The names that are taken when the provider is asked."""


class OpenApiProvider:
    """Offers what one document describes."""

    lists_whole_set = True

    def __init__(self, upstream: ConfiguredUpstream, taken: Taken, *, priority: int) -> None:
        self.name = f"upstream:{upstream.name}"
        self.priority = priority
        self.origin = f"openapi:{upstream.name}"
        self.is_project = upstream.is_project
        self.identity: Mapping[str, str] = {"url": str(upstream.written["url"])}
        """Who it is, for toolkeep.lock."""
        self._upstream = upstream
        self._taken = taken

    def get_tool_definitions(self) -> Iterable[Offer]:
        """An offer for each operation, the reason in it where it cannot be imported."""
        path = Path(self._upstream.folder) / str(self._upstream.data["openapi"])
        document, raw = load_document(path)
        if hashlib.sha256(raw).hexdigest() != self._upstream.document_hash:
            raise FileUnreadable(str(path), "changed since the configuration was read; start again")
        self.identity = {"url": self.identity["url"], "title": document.title, "version": document.version}
        imports = import_document(document, wishes_of(self._upstream), self._taken())
        secrets = UpstreamSecrets(self._upstream.secrets)
        return [_with_secrets(made, secrets) if made.offer else refused_offer(made) for made in imports]


def wishes_of(upstream: ConfiguredUpstream) -> Wishes:
    """What the configuration says about an upstream."""
    data = upstream.data
    return Wishes(
        name=upstream.name,
        url=str(data["url"]),
        operations=tuple(data.get("operations") or ()),
        dangers={name: Danger.read(level) for name, level in (data.get("danger") or {}).items()},
        roles=read_roles(data.get("flow") or {}),
        checks_answers=data.get("check_answers", True) is True,
        secrets=frozenset(upstream.secrets),
    )


def _with_secrets(made: Import, secrets: UpstreamSecrets) -> Offer:
    """The offer, whose runner may ask for the secrets that the operation needs and for no others."""
    from msgspec.structs import replace

    offer = made.offer
    if offer is None or not isinstance(offer.runner, Run):
        return refused_offer(made)
    needed = secrets.only(made.secrets)
    return replace(offer, runner=Run(kind=offer.runner.kind, target=offer.runner.target, secrets=needed))
