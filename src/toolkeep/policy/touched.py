"""What a call would touch, worked out from its arguments: places, hosts, programs, databases (POL-1).

Comes in: a definition whose parameters are marked `x-touches`, and valid arguments. Goes out: each thing in
its canonical form, with the capability it takes and the argument that named it. Marks are found in properties
and items; a mark anywhere else cannot be read from a call, and its kind then counts as touched in its whole
scope.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from toolkeep.definitions.capability import Capability
from toolkeep.definitions.command_line import NoCommand, split_command
from toolkeep.definitions.frozen import objects_in
from toolkeep.definitions.parameter import (
    TOUCH_FORMS,
    TOUCHES_KEY,
    Touches,
    kinds_of_mark,
    marked_kinds,
    marked_parts,
)
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.definitions.vocabulary import TouchForm
from toolkeep.limits import TOUCHED
from toolkeep.network.hosts import Host, HostRefused, HostScope, read_host, read_url
from toolkeep.pointers import escaped, referred
from toolkeep.policy.folders import Folder
from toolkeep.policy.places import Place, PlaceRefused, Share, resolve
from toolkeep.policy.programs import resolve_program
from toolkeep.wording import echo_name

ANY_SCOPE: Final = ("", "*")
"""In a requirement: what policy grants."""

FS_WRITE: Final = "fs.write"
PROCESS_SPAWN: Final = "process.spawn"

_REFERENCES: Final = frozenset(("$ref", "$dynamicRef", "$recursiveRef"))

_DEPTH: Final = 32
"""How deep references are followed; a mark below counts as touched in its whole scope."""

_MOST_STEPS: Final = 10_000
"""Parts of a schema that are looked at, each as often as it is referred to; so does a mark after them."""


class TouchRefused(Exception):
    """An argument that names nothing that may be touched."""

    def __init__(
        self, pointer: str, reason: str, *, is_changed: bool = False, can_be_mended: bool = False
    ) -> None:
        super().__init__(reason)
        self.pointer = pointer
        self.reason = reason
        self.is_changed = is_changed
        self.can_be_mended = can_be_mended
        """Whether whoever calls could name something else, such as a file that exists."""


Thing = Place | Host | HostScope | str


class Touched:
    """One thing that a call would touch; a place is held open until it is closed."""

    __slots__ = ("folder", "is_program", "kind", "named", "objection", "pointer", "root", "shown", "thing")

    def __init__(self, kind: str, pointer: str, thing: Thing, named: str = "") -> None:
        self.kind = kind
        self.pointer = pointer
        """The argument that named it; empty where the tool's own requirement did."""
        self.thing = thing
        self.is_program = False
        """Whether the argument is a command line that only begins with it."""
        self.objection = ""
        """What is wrong with it; told only to who may know what lies there."""
        self.folder: Folder | None = None
        self.root = ""
        """The scope, as it was granted, that it lies in; set once that is known."""
        self.shown = thing.path if isinstance(thing, Place) else str(thing)
        self.named = echo_name(named) if named and isinstance(thing, Place) else self.shown
        """As a model may read it: where a path really leads is not its business."""

    def check_unchanged(self) -> None:
        """Raise `TouchRefused` where a place is something else by now."""
        if isinstance(self.thing, Place):
            try:
                self.thing.check_unchanged()
            except PlaceRefused as refused:
                raise TouchRefused(self.pointer, refused.reason, is_changed=True) from refused

    @property
    def found(self) -> str:
        """The absolute path by which a place was found, links and all; else its canonical form."""
        return self.thing.found if isinstance(self.thing, Place) else self.shown

    @property
    def identity(self) -> str:
        """Device and inode of a place; else its canonical form."""
        place = self.thing
        return f"{place.device}:{place.inode}:{place.missing}" if isinstance(place, Place) else self.shown

    @property
    def root_path(self) -> str | None:
        """The real folder of the grant that a place lies in."""
        return self.folder.real_path() if self.folder is not None else None

    def content(self, limit: int) -> bytes | None:
        """What a file holds; None where it is no file or longer. One that does not exist holds nothing."""
        place = self.thing
        if not isinstance(place, Place):
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
        """A descriptor of the very file or folder that was checked, to read it; None where there is none."""
        place = self.thing
        if not isinstance(place, Place) or place.missing:
            return None
        try:
            return os.open(f"/proc/self/fd/{place.descriptor}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None

    def count(self, share: Share) -> None:
        """Count a place among those that an agent holds, until it is closed; raises `NoRoom`."""
        if isinstance(self.thing, Place):
            self.thing.count(share)

    def close(self) -> None:
        """Let go of a place."""
        if isinstance(self.thing, Place):
            self.thing.close()

    def __repr__(self) -> str:
        return f"<{self.kind} of {self.shown!r}>"


Path = tuple[str | None, ...]
"""The way to an argument; None is each item of an array."""


class TouchPlan:
    """What is to be looked at in every call of one tool."""

    def __init__(self, definition: ToolDefinition) -> None:
        self.required = definition.capabilities
        reader = _Marks(definition.parameters)
        self.marks = tuple(reader.found)
        self.unread = reader.unread
        """Kinds that are marked where a call cannot be read."""
        self.touches_nothing = not self.required and not self.marks and not self.unread
        """Whether no call of the tool touches anything."""

    def touched(self, arguments: Mapping[str, Any], base: str, search: str) -> list[Touched]:
        """What the arguments name; relative paths start from `base`, programs are looked for in `search`.

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
        """The requirements of which nothing in the call says how much of them it takes (POL-1)."""
        alone = {mark.kind for _, mark in self.marks if mark.only}
        named = ({one.kind for one in touched} | alone) - self.unread
        yield from (capability for capability in self.required if capability.kind not in named)
        required = {capability.kind for capability in self.required}
        yield from (Capability(kind) for kind in self.unread - required)


def whole_scope(capability: Capability, base: str, search: str) -> Touched:
    """A requirement's whole scope as a thing that is touched; the caller closes it."""
    if TOUCH_FORMS[capability.kind] is not TouchForm.URL:
        return _touch(Touches(capability.kind), "", capability.scope, base, search)
    try:
        return Touched(capability.kind, "", HostScope.read(capability.scope))
    except ValueError as error:
        raise TouchRefused("", f"the tool requires what nobody can grant: {error}") from error


class _Marks:
    """Finds the marks in a schema that can be followed in a call, and the kinds of those that cannot."""

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
            # From a place that no call is read by, a reference may lead to a mark that is read elsewhere.
            self._cut = self._marked
        unreached = (schema for schema in marked_parts(root) if id(schema) not in self._reached)
        self.unread = self._cut.union(*(kinds_of_mark(schema[TOUCHES_KEY]) for schema in unreached))

    def _walk(self, schema: Any, path: Path, followed: frozenset[str]) -> None:
        if not isinstance(schema, dict):
            return
        self._walked.add(id(schema))
        self._steps += 1
        if path and TOUCHES_KEY in schema:
            self._reached.add(id(schema))
            self.found[path, Touches.read(schema[TOUCHES_KEY])] = None
        properties = schema.get("properties")
        for name, inside in properties.items() if isinstance(properties, dict) else ():
            self._walk(inside, (*path, name), followed)
        self._walk(schema.get("items"), (*path, None), followed)
        for keyword in ("allOf", "anyOf", "oneOf"):  # they speak about the same value
            for inside in schema.get(keyword, ()):
                self._walk(inside, path, followed)
        for keyword in sorted(_REFERENCES):
            if keyword in schema:
                self._follow(schema[keyword], path, followed, is_plain=keyword == "$ref")

    def _follow(self, reference: Any, path: Path, followed: frozenset[str], *, is_plain: bool) -> None:
        target = _look_up(self._root, reference) if is_plain else None
        if target is None or reference in followed or len(path) > _DEPTH or self._steps > _MOST_STEPS:
            # A schema that holds itself has marks at every depth; one that refers often, at very many places.
            self._cut = self._marked
        else:
            self._walk(target, path, followed | {reference})


def _look_up(root: Mapping[str, Any], reference: Any) -> Any:
    """What a reference leads to; None where it is no pointer from the root, or leads nowhere."""
    try:
        return referred(root, reference)
    except KeyError:
        return None


def _values(value: Any, path: Path, pointer: str) -> Iterator[tuple[str, Any]]:
    """The values at a path, each with its pointer; an absent one names nothing."""
    if not path:
        if value is not None:
            yield pointer, value
    elif path[0] is None:
        for index, item in enumerate(value if isinstance(value, list) else ()):
            yield from _values(item, path[1:], f"{pointer}/{index}")
    elif isinstance(value, dict) and path[0] in value:
        yield from _values(value[path[0]], path[1:], f"{pointer}/{escaped(path[0])}")


def _texts(mark: Touches, values: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, str]]:
    """Each text that names something, with its pointer; of a command its program alone."""
    for pointer, value in values:
        if not isinstance(value, list):
            text = _checked_text(mark, pointer, value)
            yield pointer, _program_of(pointer, text) if mark.form is TouchForm.ARGV else text
            continue
        if mark.form is TouchForm.ARGV and not value:
            raise TouchRefused(pointer, "a command without a program", can_be_mended=True)
        named = value[:1] if mark.form is TouchForm.ARGV else value
        for index, item in enumerate(named):
            yield f"{pointer}/{index}", _checked_text(mark, pointer, item)


def _program_of(pointer: str, command: str) -> str:
    """The first word of a command line."""
    try:
        return split_command(command)[0]
    except NoCommand as error:
        raise TouchRefused(pointer, f"the command cannot be run: {error}") from error


def _checked_text(mark: Touches, pointer: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TouchRefused(pointer, f"only text can name what {mark.kind} touches")
    return value


def _check_number(found: list[Touched], pointer: str) -> None:
    if len(found) >= TOUCHED:
        reason = f"the call names more than {TOUCHED} files, hosts or programs"
        raise TouchRefused(pointer, reason, can_be_mended=True)


def _touch(mark: Touches, pointer: str, text: str, base: str, search: str) -> Touched:
    try:
        if mark.form is TouchForm.PATH:
            return _touch_path(mark.kind, pointer, text, base)
        thing = _thing(mark, text, base, search)
    except (PlaceRefused, HostRefused) as refused:
        raise TouchRefused(pointer, refused.reason, can_be_mended=True) from refused
    touched = Touched(mark.kind, pointer, thing, text)
    touched.is_program = mark.form is TouchForm.ARGV
    return touched


def _touch_path(kind: str, pointer: str, text: str, base: str) -> Touched:
    """A place, also one that is not there: whether it is, is told only where the agent may read."""
    try:
        place = resolve(text, base, may_be_missing=True)
    except PlaceRefused as refused:
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
    """What stands in the way, told only to who may know: the deepest place there is, with an objection."""
    head, rest = text if text.startswith("/") else f"{base}/{text}", ""
    while True:
        head, _, name = head.rstrip("/").rpartition("/")
        rest = f"/{name}{rest}"
        try:
            place = resolve(head or "/", base, may_be_missing=False)
        except PlaceRefused:
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
