"""Extracts from the arguments which resources a call touches: paths, hosts, programs, databases (POL-1).

In come a definition with parameters marked `x-touches`, and valid arguments. Out goes each resource in
canonical form, with the capability it needs and the argument that named it. Marks are followed through
`properties` and `items`. A mark elsewhere cannot be located in a call, so its whole capability kind counts as
touched.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from toolkeep.definitions.capability import Capability
from toolkeep.definitions.command_line import NoCommand, split_command
from toolkeep.definitions.parameter import marked_kinds, marked_parts
from toolkeep.definitions.parameter_marks import TOUCH_FORMS, TOUCHES_KEY, Touches, kinds_of_mark
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.definitions.vocabulary import Isolation, TouchForm
from toolkeep.json_values.frozen import objects_in
from toolkeep.json_values.pointers import escaped, referred
from toolkeep.limits import TOUCHED
from toolkeep.network.hosts import Host, HostRefused, HostScope, read_host, read_url
from toolkeep.policy.path_grants import Folder
from toolkeep.policy.program_grants import resolve_program
from toolkeep.policy.resolved_path import DescriptorQuota, PathRefused, ResolvedPath, resolve
from toolkeep.text.display import echo_name

ANY_SCOPE: Final = ("", "*")
"""Scopes of a requirement that mean "whatever the agent holds"."""

FS_WRITE: Final = "fs.write"
PROCESS_SPAWN: Final = "process.spawn"

_REFERENCES: Final = frozenset(("$ref", "$dynamicRef", "$recursiveRef"))

_DEPTH: Final = 32
"""How deep `$ref` is followed; a mark below counts as touched in its whole scope."""

_MOST_STEPS: Final = 10_000
"""Subschemas that are visited, counted once per reference; marks beyond count as touched in their whole
scope."""


class TouchRefused(Exception):
    """An argument names a resource that may not be touched."""

    def __init__(
        self,
        pointer: str,
        reason: str,
        *,
        is_changed: bool = False,
        can_be_fixed: bool = False,
        lacks: str = "",
        ungranted: str = "",
    ) -> None:
        super().__init__(reason)
        self.pointer = pointer
        self.reason = reason
        self.is_changed = is_changed
        self.can_be_fixed = can_be_fixed
        """Whether the caller could fix the call by another argument, such as a file that exists."""
        self.lacks = lacks
        """The capability that the agent would have to hold."""
        self.ungranted = ungranted
        """What the agent has no grant for, as the caller named it."""


Thing = ResolvedPath | Host | HostScope | str


class Touched:
    """One touched resource; a path is held open by its descriptor until it is closed."""

    __slots__ = (
        "folder", "hosts", "is_program", "kind", "named", "objection", "pointer", "root", "shown", "thing",
    )  # fmt: skip

    def __init__(self, kind: str, pointer: str, thing: Thing, named: str = "") -> None:
        self.kind = kind
        self.pointer = pointer
        """JSON Pointer of the argument that named it; empty if the tool's requirement did."""
        self.thing = thing
        self.is_program = False
        """Whether the argument is a command line whose first word it is."""
        self.objection = ""
        """Why it cannot be used. Told only to an agent that may read there, or it would reveal which files
        exist."""
        self.folder: Folder | None = None
        self.root = ""
        """The granted scope that contains it, set by the authorizer."""
        self.hosts: tuple[HostScope, ...] = ()
        """For a host, what of the grants the call may reach, set by the authorizer."""
        self.shown = thing.path if isinstance(thing, ResolvedPath) else str(thing)
        self.named = echo_name(named) if named and isinstance(thing, ResolvedPath) else self.shown
        """As shown to a model: a path as written, because its link target may lie outside the agent's
        grant."""

    def check_unchanged(self) -> None:
        """Raise `TouchRefused` if a path leads to something else by now (TOCTOU)."""
        if isinstance(self.thing, ResolvedPath):
            try:
                self.thing.check_unchanged()
            except PathRefused as refused:
                raise TouchRefused(self.pointer, refused.reason, is_changed=True) from refused

    @property
    def found(self) -> str:
        """The absolute path as given, with its links; for other resources the canonical form."""
        return self.thing.found if isinstance(self.thing, ResolvedPath) else self.shown

    @property
    def identity(self) -> str:
        """Device and inode of a path; for other resources the canonical form."""
        place = self.thing
        return (
            f"{place.device}:{place.inode}:{place.missing}" if isinstance(place, ResolvedPath) else self.shown
        )

    @property
    def is_missing(self) -> bool:
        """Whether it is a path that does not exist yet."""
        return isinstance(self.thing, ResolvedPath) and bool(self.thing.missing)

    @property
    def root_path(self) -> str | None:
        """The real path of the granted folder that contains it."""
        return self.folder.real_path() if self.folder is not None else None

    def content(self, limit: int) -> bytes | None:
        """The content of a file up to `limit`.

        None if it is not a file or is longer; empty if it does not exist yet.
        """
        place = self.thing
        if not isinstance(place, ResolvedPath):
            return None
        if place.missing:
            return b""
        descriptor = self.open() if place.is_file else None
        if descriptor is None:
            return None
        try:
            with open(descriptor, "rb") as file:
                data = file.read(limit + 1)
        except OSError:
            return None
        return data if len(data) <= limit else None

    def open(self) -> int | None:
        """Open the checked file for reading, through its descriptor; None if that is not possible."""
        place = self.thing
        if not isinstance(place, ResolvedPath) or place.missing:
            return None
        try:
            # Reopened through procfs, so it is the inode that was checked. O_NONBLOCK: a FIFO must not block
            # the host.
            return os.open(f"/proc/self/fd/{place.descriptor}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None

    def count(self, share: DescriptorQuota) -> None:
        """Charge a path to the agent's quota until it is closed; raises `QuotaExceeded`."""
        if isinstance(self.thing, ResolvedPath):
            self.thing.count(share)

    def close(self) -> None:
        """Close the descriptor."""
        if isinstance(self.thing, ResolvedPath):
            self.thing.close()

    def __repr__(self) -> str:
        return f"<{self.kind} of {self.shown!r}>"


Path = tuple[str | None, ...]
"""Path to an argument; None stands for every item of an array."""


class TouchPlan:
    """Where the arguments of one tool name resources; made once per definition."""

    def __init__(self, definition: ToolDefinition) -> None:
        self.required = definition.capabilities
        reader = _Marks(definition.parameters)
        self.marks = tuple(reader.found)
        self.unread = reader.unread
        """Capability kinds with a mark that cannot be located in a call."""
        self.dispensable = _dispensable(definition)
        """Capability kinds without a scope that the tool does without where the agent holds none."""
        self.touches_nothing = not self.required and not self.marks and not self.unread
        """Whether no call of the tool touches any resource, so that the capability check is skipped."""

    def touched(self, arguments: Mapping[str, Any], base: str, search: str) -> list[Touched]:
        """The resources that the arguments name.

        Relative paths start from `base`, programs are looked up in `search`.

        The caller closes them. Raises `TouchRefused`.
        """
        found: list[Touched] = []
        try:
            for path, mark in self.marks:
                for pointer, text in _texts(mark, _values(arguments, path, "")):
                    _check_number(found, pointer)
                    found.append(_touch(mark, pointer, text, base, search))
        except BaseException:
            for touched in found:
                touched.close()
            raise
        return found

    def wholes(self, touched: list[Touched]) -> Iterator[Capability]:
        """Requirements that no argument narrows to a resource: their whole scope is touched (POL-1)."""
        alone = {mark.kind for _, mark in self.marks if mark.only}
        named = ({one.kind for one in touched} | alone) - self.unread
        yield from (capability for capability in self.required if capability.kind not in named)
        required = {capability.kind for capability in self.required}
        yield from (Capability(kind) for kind in self.unread - required)


def _dispensable(definition: ToolDefinition) -> frozenset[str]:
    """Writing, for a tool that starts any program and is confined: `ls` must not need a grant to write.

    Its worker can write what the agent holds, and so nothing where it holds nothing. Only at strict: in
    process and at standard nothing but this check keeps a tool from writing, and a client runs its tools
    itself.
    """
    is_confined = definition.constraints.required_isolation is Isolation.STRICT
    is_ours_to_run = definition.source.is_by_hand and not definition.client_executed
    starts_any = Capability(PROCESS_SPAWN) in definition.capabilities
    return frozenset({FS_WRITE}) if is_confined and is_ours_to_run and starts_any else frozenset()


def whole_scope(capability: Capability, base: str, search: str) -> Touched:
    """A requirement's whole scope as a touched resource; the caller closes it."""
    if capability.kind not in TOUCH_FORMS:  # an upstream, compared by its name
        return Touched(capability.kind, "", capability.scope)
    if TOUCH_FORMS[capability.kind] is not TouchForm.URL:
        return _touch(Touches(capability.kind), "", capability.scope, base, search)
    try:
        return Touched(capability.kind, "", HostScope.read(capability.scope))
    except ValueError as error:
        raise TouchRefused("", f"the tool requires something that cannot be granted: {error}") from error


class _Marks:
    """Finds the `x-touches` marks that can be located in a call, and the kinds of those that cannot."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._marked = marked_kinds(root)
        self._reached: set[int] = set()
        self._walked: set[int] = set()
        self._steps = 0
        self._cut: frozenset[str] = frozenset()
        self.found: dict[tuple[Path, Touches], None] = {}
        if self._marked:
            self._walk(root, (), frozenset())
        if any(_REFERENCES & here.keys() and id(here) not in self._walked for here in objects_in(root)):
            # An unvisited reference may apply a known mark to arguments that are not located. Fail closed:
            # every marked kind counts as touched in its whole scope.
            self._cut = self._marked
        unreached = (schema for schema in marked_parts(root) if id(schema) not in self._reached)
        self.unread = self._cut.union(*(kinds_of_mark(schema[TOUCHES_KEY]) for schema in unreached))

    def _walk(self, schema: Any, path: Path, followed: frozenset[str]) -> None:
        if not isinstance(schema, dict):
            return
        self._walked.add(id(schema))
        self._steps += 1
        # A mark at the root would apply to the whole arguments object, which names no resource.
        if path and TOUCHES_KEY in schema:
            self._reached.add(id(schema))
            self.found[path, Touches.read(schema[TOUCHES_KEY])] = None
        properties = schema.get("properties")
        for name, inside in properties.items() if isinstance(properties, dict) else ():
            self._walk(inside, (*path, name), followed)
        self._walk(schema.get("items"), (*path, None), followed)
        for keyword in ("allOf", "anyOf", "oneOf"):  # they apply to the same value
            for inside in schema.get(keyword, ()):
                self._walk(inside, path, followed)
        for keyword in sorted(_REFERENCES):
            if keyword in schema:
                self._follow(schema[keyword], path, followed, is_plain=keyword == "$ref")

    def _follow(self, reference: Any, path: Path, followed: frozenset[str], *, is_plain: bool) -> None:
        target = _look_up(self._root, reference) if is_plain else None
        if target is None or reference in followed or len(path) > _DEPTH or self._steps > _MOST_STEPS:
            # Recursive schemas have marks at every depth, and fan-out of references is exponential: stop, and
            # let the whole scope count as touched.
            self._cut = self._marked
        else:
            self._walk(target, path, followed | {reference})


def _look_up(root: Mapping[str, Any], reference: Any) -> Any:
    """The target of a `$ref`; None if it is not a local JSON Pointer or dangles."""
    try:
        return referred(root, reference)
    except KeyError:
        return None


def _values(value: Any, path: Path, pointer: str) -> Iterator[tuple[str, Any]]:
    """The values at a path, each with its JSON Pointer; an absent argument names nothing."""
    if not path:
        if value is not None:
            yield pointer, value
    elif path[0] is None:
        for index, item in enumerate(value if isinstance(value, list) else ()):
            yield from _values(item, path[1:], f"{pointer}/{index}")
    elif isinstance(value, dict) and path[0] in value:
        yield from _values(value[path[0]], path[1:], f"{pointer}/{escaped(path[0])}")


def _texts(mark: Touches, values: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, str]]:
    """Each string that names a resource, with its pointer; for a command only its program."""
    for pointer, value in values:
        if not isinstance(value, list):
            text = _checked_text(mark, pointer, value)
            yield pointer, _program_of(pointer, text) if mark.form is TouchForm.ARGV else text
            continue
        # An empty argv would name no program, and no program would be checked.
        if mark.form is TouchForm.ARGV and not value:
            raise TouchRefused(pointer, "a command without a program", can_be_fixed=True)
        named = value[:1] if mark.form is TouchForm.ARGV else value
        # Each item is resolved and checked: one allowed path must not cover the rest of the list.
        for index, item in enumerate(named):
            yield f"{pointer}/{index}", _checked_text(mark, pointer, item)


def _program_of(pointer: str, command: str) -> str:
    """argv[0] of a command line, split as the runner splits it."""
    try:
        return split_command(command)[0]
    except NoCommand as error:
        raise TouchRefused(pointer, f"the command cannot be run: {error}") from error


def _checked_text(mark: Touches, pointer: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TouchRefused(pointer, f"only text can name what {mark.kind} touches")
    return value


def _check_number(found: list[Touched], pointer: str) -> None:
    """Bound the descriptors that one call can make the host open."""
    if len(found) >= TOUCHED:
        reason = f"the call names more than {TOUCHED} files, hosts or programs"
        raise TouchRefused(pointer, reason, can_be_fixed=True)


def _touch(mark: Touches, pointer: str, text: str, base: str, search: str) -> Touched:
    try:
        if mark.form is TouchForm.PATH:
            return _touch_path(mark.kind, pointer, text, base)
        thing = _thing(mark, text, base, search)
    except (PathRefused, HostRefused) as refused:
        raise TouchRefused(pointer, refused.reason, can_be_fixed=True) from refused
    touched = Touched(mark.kind, pointer, thing, text)
    touched.is_program = mark.form is TouchForm.ARGV
    return touched


def _touch_path(kind: str, pointer: str, text: str, base: str) -> Touched:
    """Resolve a path even if it is missing: existence is revealed only where the agent may read."""
    try:
        place = resolve(text, base, may_be_missing=True)
    except PathRefused as refused:
        if not refused.tells_what_is_there:
            raise
        return _unreachable(kind, pointer, text, base, refused.reason)
    touched = Touched(kind, pointer, place, text)
    if place.missing and kind != FS_WRITE:
        touched.objection = f"'{echo_name(text)}' does not exist"
    elif place.is_special:
        touched.objection = f"'{echo_name(text)}' is a device, a socket or a pipe"
    return touched


def _unreachable(kind: str, pointer: str, text: str, base: str, reason: str) -> Touched:
    """A path that cannot be opened, as its deepest existing ancestor with an objection.

    The objection is shown only after the grant was checked. To refuse at once would tell an agent which files
    exist outside its grant.
    """
    head, rest = text if text.startswith("/") else f"{base}/{text}", ""
    while True:
        head, _, name = head.rstrip("/").rpartition("/")
        rest = f"/{name}{rest}"
        try:
            place = resolve(head or "/", base, may_be_missing=False)
        except PathRefused:
            if not head:
                raise
        else:
            break
    touched = Touched(kind, pointer, place, text)
    touched.shown = f"{place.path.rstrip('/')}{rest}"
    touched.objection = reason
    return touched


def _thing(mark: Touches, text: str, base: str, search: str) -> Thing:
    match mark.form:
        case TouchForm.URL:
            return read_url(text)
        case TouchForm.HOST:
            return read_host(text)
        case TouchForm.ARGV:
            return resolve_program(text, base, search)
        case _:
            return text
