"""Coverage of remembered approvals (session or rule): one constraint for each argument (POL-4).

In come a call that was approved and the person's choices. Out go constraints that a later call must satisfy,
all of them, to skip approval. Paths are compared by where they lead, secrets by HMAC, everything else as
written. An argument without a constraint is not covered. Credentials and commands must always be equal,
because any change of them changes what is done. It does not protect a person who frees an argument that
matters.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final, Literal, get_args

import msgspec

from toolkeep.calls import NamedThing
from toolkeep.definitions.argument_roles import ArgumentMarks
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.json_values.pointers import escaped, steps_of
from toolkeep.network.hosts import HostRefused, read_host, read_url

Kind = Literal["equal", "any", "folder", "host", "domain", "max"]

_KINDS: Final[dict[str, Kind]] = {kind: kind for kind in get_args(Kind)}

EQUAL: Final = "equal"
ANY: Final = "any"

SHOWN_CHARS: Final = 200
"""Characters of a value that are shown in the text of a rule."""

WHOLE: Final = "arguments"
"""Stands for all arguments of a sensitive tool, whose names are not shown either."""

_FOLDERS: Final = 8
_MAIL: Final = re.compile(
    r"(?!-)[A-Za-z0-9.#$&'*+/=?^_`{|}~-]{1,64}@((?:[A-Za-z0-9-]{1,63}\.)+[A-Za-z0-9-]{2,63})"
)
"""Exactly one plain mail address. A list in one string could add a recipient, `eve%evil.test` routes to
another host, and a leading dash is an option to some mail programs."""


class Argument(msgspec.Struct, frozen=True, kw_only=True):
    """One argument in the form that remembered approvals compare."""

    name: str
    digest: str = ""
    """SHA-256 of its value and the resources it names; empty if it is absent."""
    shown: str = ""
    """The start of its value; of a secret only its length."""
    role: str = ""
    """Its declared role if that carries no authority: content or option."""
    fixed: str = ""
    """Why it must be equal: it is a credential or a command. Empty if it may be freed."""
    paths: tuple[str, ...] = ()
    """Real paths, if it names files or folders and nothing else."""
    hosts: tuple[str, ...] = ()
    """The hosts, if it is a URL or host, or a list of them."""
    domains: tuple[str, ...] = ()
    """The mail domains, if it is a mail address, or a list of them."""
    number: int | float | None = None
    """Its value, if it is a non-negative number."""
    bounds: tuple[str, ...] = ()
    """Constraints that would cover this call, narrowest first, such as `folder:/srv/docs`."""


class Constraint(msgspec.Struct, frozen=True, kw_only=True):
    """A constraint that a later call must satisfy in one argument."""

    name: str
    kind: Kind
    bound: str = ""
    """The digest of an equal value, or the folder, host, domain or maximum."""
    shown: str = ""
    """For `equal`, the start of the value."""

    @property
    def text(self) -> str:
        """Text form: `equal`, `any`, `folder:/srv/docs`."""
        return self.kind if self.kind in (EQUAL, ANY) else f"{self.kind}:{self.bound}"

    def allows(self, argument: Argument) -> bool:
        """Whether an argument satisfies the constraint."""
        if self.kind == EQUAL:
            return argument.digest == self.bound
        # Checked again for each call: the definition may mark the argument as a credential by now.
        if argument.fixed:
            return False
        match self.kind:
            case "any":
                return True
            case "folder":
                return bool(argument.paths) and all(_is_inside(path, self.bound) for path in argument.paths)
            case "host":
                return set(argument.hosts) == {self.bound}
            case "domain":
                return set(argument.domains) == {self.bound}
            case "max":
                # `number` is None for negative values: a negative amount would reverse a payment.
                return argument.number is not None and Decimal(str(argument.number)) <= Decimal(self.bound)


class ConstraintRefused(ValueError):
    """A constraint that cannot be chosen for a call; the text says why."""


def covers(constraints: Iterable[Constraint], arguments: Iterable[Argument]) -> bool:
    """Whether a call is covered: every argument satisfies its constraint, and none lacks one."""
    required = {constraint.name: constraint for constraint in constraints}
    given = {argument.name: argument for argument in arguments}
    # An argument that the approval never saw (a new `bcc`) is not covered.
    if given.keys() - required.keys():
        return False
    return all(one.allows(given.get(name, Argument(name=name))) for name, one in required.items())


def constraints_of(arguments: Sequence[Argument], chosen: Mapping[str, str]) -> tuple[Constraint, ...]:
    """The constraints of an approval.

    All equal except content and options, unless the person chose otherwise.

    Raises `ConstraintRefused` for an impossible choice, or one that would not cover the call itself.
    """
    names = {argument.name for argument in arguments}
    for name in chosen:
        if name not in names:
            raise ConstraintRefused(f"the call has no argument {name[:64]!r}")
    return tuple(_chosen(argument, chosen.get(argument.name, "")) for argument in arguments)


def _chosen(argument: Argument, word: str) -> Constraint:
    # The default is the narrowest: what a person does not mention must be equal.
    given, _, bound = (word or (ANY if argument.role else EQUAL)).partition(":")
    kind = _KINDS.get(given)
    if kind is None:
        raise ConstraintRefused(f"{word[:64]!r} is not one of equal, any, folder:…, host:…, domain:…, max:…")
    if kind == EQUAL:
        return Constraint(name=argument.name, kind=EQUAL, bound=argument.digest, shown=argument.shown)
    if argument.fixed:
        raise ConstraintRefused(f"{argument.name!r} must be equal: it is {argument.fixed}")
    # NaN compares false with everything and would make a rule that looks like a limit.
    if kind == "max" and not _is_number(bound):
        raise ConstraintRefused(f"{bound[:64]!r} is not a number")
    if kind == "folder":
        # A relative folder would depend on the working folder of a later call; empty covers nothing.
        bound = os.path.normpath(bound) if bound.startswith("/") else ""
    constraint = Constraint(name=argument.name, kind=kind, bound="" if kind == ANY else bound)
    # A rule that does not cover the call it was made for is a mistake of the person, or of the page.
    if not constraint.allows(argument):
        raise ConstraintRefused(f"{word[:200]!r} does not cover {argument.name!r} of this call")
    return constraint


def _is_number(text: str) -> bool:
    try:
        return Decimal(text).is_finite()
    except InvalidOperation:
        return False


def _is_inside(path: str, folder: str) -> bool:
    """Whether a path lies strictly below.

    Approval for the files in a folder is none to delete or move the folder.
    """
    return bool(folder) and path != folder and path.startswith(folder.rstrip("/") + "/")


# --- the arguments of a call -------------------------------------------------------------------------


def arguments_of(
    definition: ToolDefinition,
    marks: ArgumentMarks,
    values: Mapping[str, Any],
    sealed: Mapping[str, Any],
    shown: Mapping[str, Any],
    touched: Sequence[NamedThing],
) -> tuple[Argument, ...]:
    """Every declared or given argument.

    Absent ones too: absence is compared as well, or a later call could add one.

    `sealed` holds the arguments with each secret replaced by its HMAC, `shown` with each replaced by its
    length.
    """
    if definition.sensitive or sealed.keys() != values.keys():
        # A sensitive tool reveals nothing, not even argument names: all arguments are compared as one.
        digest = hashlib.sha256(canonical_bytes(dict(sealed))).hexdigest()
        text = str(next(iter(shown.values()), ""))
        return (Argument(name=WHOLE, digest=digest, shown=text, fixed="a credential"),)
    names = dict.fromkeys((*definition.properties, *values))
    roles = definition.roles
    made = []
    for name in names:
        role = roles.get(name)
        fixed = _fixed(marks, name, is_sealed=name in values and sealed[name] != values[name])
        # A declared role is ignored if the argument touches a resource or is a credential: an upstream could
        # declare its recipient as "content", and a remembered approval would then cover any recipient.
        is_free = role is not None and not role.carries_authority and not fixed and not marks.touches(name)
        argument = Argument(name=name, role=role.value if role and is_free else "", fixed=fixed)
        if name in values:
            own = [one for one in touched if steps_of(one.pointer)[:1] == [name]]
            argument = _given(argument, values[name], sealed[name], shown[name], own)
        made.append(argument)
    return tuple(made)


def _fixed(marks: ArgumentMarks, name: str, *, is_sealed: bool) -> str:
    if is_sealed or marks.is_credential(name):
        return "a credential"
    return "a command" if marks.is_command(name) else ""


def _given(argument: Argument, value: Any, sealed: Any, shown: Any, own: list[NamedThing]) -> Argument:
    """An argument that is present in the call."""
    if argument.fixed == "a credential":
        return msgspec.structs.replace(argument, digest=_digest(sealed, []), shown=beginning(shown))
    # `shown` is the real path, as authorization resolved it.
    places = {one.pointer: one.shown for one in own if one.kind.startswith("fs.")}
    named = [[one.pointer, one.kind, one.shown] for one in own]
    texts = _texts(value, f"/{escaped(argument.name)}")
    paths = tuple(places[at] for at in texts) if texts and texts.keys() <= places.keys() else ()
    is_host = any(one.kind.startswith("net.") for one in own)
    hosts = tuple(_all(_host(text, is_host=is_host) for text in texts.values()))
    domains = tuple(_all(map(_domain, texts.values())))
    # True is an int in Python; `max` must not take a flag for an amount.
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    number = value if is_number and math.isfinite(value) and value >= 0 else None
    return msgspec.structs.replace(
        argument,
        # The link target is compared, not the text: the same text may lead elsewhere tomorrow.
        digest=_digest(_without(value, f"/{escaped(argument.name)}", places), named),
        shown=beginning(paths[0] if len(paths) == 1 else shown),
        paths=paths,
        hosts=hosts,
        domains=domains,
        number=number,
        bounds=() if argument.fixed else tuple(_bounds(paths, own, hosts, domains, number)),
    )


def _digest(value: Any, named: list[list[str]]) -> str:
    return hashlib.sha256(canonical_bytes([value, named])).hexdigest()


def beginning(value: Any) -> str:
    """The start of a value as JSON text."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}… ({len(text)} characters)"


def _texts(value: Any, pointer: str) -> dict[str, str]:
    """A string, or the items of a list of strings only, by pointer."""
    if isinstance(value, str):
        return {pointer: value}
    items = value if isinstance(value, list) else []
    if not all(isinstance(item, str) for item in items):
        return {}
    return {f"{pointer}/{index}": item for index, item in enumerate(items)}


def _without(value: Any, pointer: str, places: Mapping[str, str]) -> Any:
    """The value with each path replaced by None: its target is compared separately."""
    if pointer in places:
        return None
    if isinstance(value, list):
        return [_without(item, f"{pointer}/{index}", places) for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {key: _without(inside, f"{pointer}/{escaped(key)}", places) for key, inside in value.items()}
    return value


def _all(found: Iterable[str]) -> list[str]:
    """All of them, or none if one is empty."""
    listed = list(found)
    return listed if all(listed) else []


def _host(text: str, *, is_host: bool) -> str:
    """The host of a URL, with its scheme unless that is https: approval for https is none for plain http."""
    try:
        if "://" in text:
            host = read_url(text)
            return str(host) if host.scheme == "https" else f"{host.scheme}://{host}"
        return str(read_host(text)) if is_host else ""
    except HostRefused:
        return ""


def _domain(text: str) -> str:
    found = _MAIL.fullmatch(text)
    return found[1].lower() if found else ""


def _bounds(
    paths: Sequence[str],
    own: Sequence[NamedThing],
    hosts: Sequence[str],
    domains: Sequence[str],
    number: float | None,
) -> Iterator[str]:
    if paths:
        roots = [one.root_path for one in own if one.root_path]
        yield from (f"folder:{folder}" for folder in _folders(paths, roots))
    # Offered only if all agree: a bound over several hosts would cover more than the person saw.
    if len(set(hosts)) == 1:
        yield f"host:{hosts[0]}"
    if len(set(domains)) == 1:
        yield f"domain:{domains[0]}"
    if number is not None:
        yield f"max:{number}"


def _folders(paths: Sequence[str], roots: Sequence[str]) -> Iterator[str]:
    """The folders that contain all paths, narrowest first, up to the granted folder."""
    holding = os.path.commonpath([Path(path).parent for path in paths])
    if holding in paths:  # the file system root is its own parent
        return
    for folder in [Path(holding), *Path(holding).parents][:_FOLDERS]:
        yield str(folder)
        if str(folder) in roots:
            return
