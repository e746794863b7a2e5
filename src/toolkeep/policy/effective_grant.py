"""The effective grant of an agent, and whether it covers a touched resource (POL-1, POL-3)."""

import contextlib
from collections.abc import Iterable, Iterator
from typing import Final

from toolkeep.definitions.capability import Capability
from toolkeep.definitions.parameter_marks import TOUCH_FORMS
from toolkeep.definitions.vocabulary import TouchForm
from toolkeep.json_values.canonical import canonical_hash
from toolkeep.network.hosts import Host, HostScope
from toolkeep.policy.path_grants import Folder, Written
from toolkeep.policy.policy_settings import Grant
from toolkeep.policy.program_grants import Program
from toolkeep.policy.resolved_path import PathRefused, ResolvedPath
from toolkeep.policy.touched_resources import ANY_SCOPE, Touched
from toolkeep.sandbox.import_guard import writable_folders


class EffectiveGrant:
    """A parsed grant. Raises ValueError for a scope that cannot be parsed."""

    def __init__(self, grant: Grant, *, base: str, search: str, written: Written = writable_folders) -> None:
        """Relative folders and programs in the grant start from `base`, the project."""
        self.grant = grant
        self.capabilities = frozenset(map(str, grant.capabilities))
        self.permissions = frozenset(grant.permissions)
        self.hash = canonical_hash([sorted(self.capabilities), sorted(self.permissions)])
        self._scopes = [
            (held.kind, held.scope, _granted(held, base, search, written)) for held in grant.capabilities
        ]

    def holds(self, kind: str) -> bool:
        """Whether the agent holds any scope of a capability kind."""
        return any(kind == held for held, _, _ in self._scopes)

    def places(self, kind: str) -> Iterator[ResolvedPath]:
        """The granted folders or programs of a kind, resolved now; the caller closes them."""
        for held, _, scope in self._scopes:
            if held == kind and isinstance(scope, (Folder, Program)):
                with contextlib.suppress(PathRefused):  # a missing folder grants nothing
                    yield scope.place()

    def hosts(self, kind: str) -> Iterator[str]:
        """The granted host scopes of a kind."""
        yield from (
            str(scope) for held, _, scope in self._scopes if held == kind and isinstance(scope, HostScope)
        )

    def reach_of(self, touched: Touched) -> tuple[HostScope, ...]:
        """What of the granted host scopes a host is in; all of them, since one may name a private network."""
        thing = touched.thing
        if not isinstance(thing, (Host, HostScope)):
            return ()
        return tuple(
            scope.narrowed(thing)
            for kind, _, scope in self._scopes
            if kind == touched.kind and isinstance(scope, HostScope) and _contains(scope, touched)
        )

    def covers_hosts(self, kind: str, hosts: Iterable[HostScope]) -> bool:
        """Whether granted scopes of a kind contain these, with ports and addresses."""
        held = [scope for one, _, scope in self._scopes if one == kind and isinstance(scope, HostScope)]
        return all(any(scope.covers(host) for scope in held) for host in hosts)

    def root_of(self, touched: Touched) -> str | None:
        """The granted scope, as written, that contains a resource; None if the grant does not cover it."""
        for kind, text, scope in self._scopes:
            if kind == touched.kind and _contains(scope, touched):
                return text
        return None

    def folder_of(self, root: str, kind: str) -> Folder | None:
        """The granted folder with this text."""
        scopes = (scope for held, text, scope in self._scopes if (held, text) == (kind, root))
        return next((scope for scope in scopes if isinstance(scope, Folder)), None)


Scope = Folder | HostScope | Program | str


def requirement_contains(capability: Capability, touched: Touched, *, base: str, search: str) -> bool:
    """Whether a resource lies inside a capability that the tool requires."""
    if capability.scope in ANY_SCOPE:
        return True
    try:
        return _contains(_scope(capability, base, search), touched)
    except ValueError:
        return False


_EXAMPLES: Final = {
    "fs.read": "fs.read:./docs",
    "fs.write": "fs.write:./out",
    "net.read": "net.read:example.org",
    "net.write": "net.write:example.org",
    "db.read": "db.read:books",
    "db.write": "db.write:books",
    "process.spawn": "process.spawn:git",
}


def check_scopes(capabilities: Iterable[Capability]) -> None:
    """Raise ValueError for the first scope of a grant that cannot be parsed, or grants nothing."""
    for capability in capabilities:
        _granted(capability, "/", "")


def _granted(held: Capability, base: str, search: str, written: Written = writable_folders) -> Scope:
    """The scope of a grant; ValueError for one that could never allow anything."""
    if held.scope in ANY_SCOPE:  # least privilege: no agent is granted a whole kind
        raise ValueError(
            f"{held} grants nothing: name a scope, such as {_EXAMPLES.get(held.kind, f'{held.kind}:NAME')}"
        )
    if TOUCH_FORMS.get(held.kind) is TouchForm.URL:
        return HostScope.read_grant(held.scope)
    return _scope(held, base, search, written)


def _scope(held: Capability, base: str, search: str, written: Written = writable_folders) -> Scope:
    match TOUCH_FORMS.get(held.kind):
        case TouchForm.PATH:
            return Folder(held.scope, base, written)
        case TouchForm.URL:
            return HostScope.read(held.scope)
        case TouchForm.ARGV:
            return Program(held.scope, base, search)
        case _:
            return held.scope


def _contains(scope: Scope, touched: Touched) -> bool:
    thing = touched.thing
    # The kind of thing must match the kind of scope: a host that is spelled like a path is covered by no
    # folder.
    if isinstance(scope, (Folder, Program)):
        return isinstance(thing, ResolvedPath) and scope.contains(thing)
    if isinstance(scope, HostScope):
        if isinstance(thing, HostScope):
            return scope.covers(thing)
        return isinstance(thing, Host) and scope.contains(thing)
    return scope == thing
