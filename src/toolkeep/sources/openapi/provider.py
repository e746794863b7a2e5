"""Provider of an upstream with an OpenAPI document: each operation is a tool, or skipped by name."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from toolkeep.config.settings import ConfiguredUpstream, Run
from toolkeep.definitions.argument_roles import read_tool_flows
from toolkeep.definitions.vocabulary import Danger, SideEffect
from toolkeep.errors import FileUnreadable
from toolkeep.registry.coerce import Offer
from toolkeep.sources.openapi.document import load_document
from toolkeep.sources.openapi.operation_import import Import, ImportOptions, import_document, refused_offer
from toolkeep.sources.secret_sources import UpstreamSecrets

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
        """Its identity, for toolkeep.lock."""
        self._upstream = upstream
        self._taken = taken

    def get_tool_definitions(self) -> Iterable[Offer]:
        """An offer for each operation, with the reason if it cannot be imported."""
        path = Path(self._upstream.folder) / str(self._upstream.data["openapi"])
        document, raw = load_document(path)
        if hashlib.sha256(raw).hexdigest() != self._upstream.document_hash:
            raise FileUnreadable(str(path), "changed since the configuration was read; start again")
        self.identity = {"url": self.identity["url"], "title": document.title, "version": document.version}
        imports = import_document(document, import_options_of(self._upstream), self._taken())
        secrets = UpstreamSecrets(self._upstream.secrets)
        return [_with_secrets(made, secrets) if made.offer else refused_offer(made) for made in imports]


def import_options_of(upstream: ConfiguredUpstream) -> ImportOptions:
    """The configuration's settings for an upstream."""
    data = upstream.data
    return ImportOptions(
        name=upstream.name,
        url=str(data["url"]),
        operations=tuple(data.get("operations") or ()),
        dangers={name: Danger.read(level) for name, level in (data.get("danger") or {}).items()},
        effects={name: SideEffect.read(word) for name, word in (data.get("effects") or {}).items()},
        flows=read_tool_flows(data.get("flow") or {}),
        checks_answers=data.get("check_answers", True) is True,
        secrets=frozenset(upstream.secrets),
    )


def _with_secrets(made: Import, secrets: UpstreamSecrets) -> Offer:
    """The offer, whose runner can read only the secrets that the operation needs."""
    from msgspec.structs import replace

    offer = made.offer
    if offer is None or not isinstance(offer.runner, Run):
        return refused_offer(made)
    needed = secrets.only(made.secrets)
    return replace(offer, runner=Run(kind=offer.runner.kind, target=offer.runner.target, secrets=needed))
