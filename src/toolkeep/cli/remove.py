"""`toolkeep remove`: remove an upstream from the configuration, with its pins, tokens and listing."""

import stat
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from toolkeep.cli.config_edit import block_end, changed_lines, check_agreed, check_name
from toolkeep.cli.options import common, print_json, project, say, say_done
from toolkeep.cli.package_install import discard_packages, packages_of
from toolkeep.cli.upstream_access import forget_secrets
from toolkeep.errors import FileUnreadable, ImportRefused
from toolkeep.host.files import check_inside
from toolkeep.json_values.yaml import Document, read_yaml
from toolkeep.keep.open import open_state, project_folder, read_configuration, sign_ins_of
from toolkeep.registry.lockfile import LOCK_FILE, Lock, of_origins
from toolkeep.storage.atomic_files import write_whole
from toolkeep.storage.lock_file import read_lock_file, write_lock_file
from toolkeep.storage.sqlite.state_db import KeepState
from toolkeep.text.display import counted, visible

_KINDS: Final = ("mcp", "openapi")


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """A proposed removal."""

    name: str
    root: Path
    before: str
    after: str
    """The configuration, as text."""
    listing: Path | None
    """The list or document that `toolkeep add` wrote beside it."""
    tools: tuple[str, ...]
    """Those that are pinned."""
    lock: Lock | None
    """What would be left of the lock; None where it does not name the upstream."""
    is_signed_in: bool

    @property
    def path(self) -> Path:
        """Path of the configuration."""
        return self.root / ".agent" / "config.yml"

    @property
    def origins(self) -> tuple[str, ...]:
        """The origins under which the upstream is pinned and locked."""
        return tuple(f"{kind}:{self.name}" for kind in _KINDS)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to remove."""
        has_changes = self.before != self.after or self.lock is not None or self.is_signed_in
        return not (has_changes or self.tools or self.listing)

    @property
    def besides(self) -> list[str]:
        """What is removed besides the entry, as text."""
        count = counted(len(self.tools), "tool")
        words = [visible(str(self.listing))] if self.listing else []
        words += (
            [f"the accepted definitions of {count}: {visible(', '.join(self.tools))}"] if self.tools else []
        )
        words += [f"its lines of {LOCK_FILE}"] if self.lock is not None else []
        return [*words, "the tokens of your sign-in"] if self.is_signed_in else words


@click.command("remove")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Remove without asking.")
@project
@common
def command(name: str, *, yes: bool, project: Path | None, as_json: bool) -> None:
    """Remove the upstream NAME, an MCP server or an HTTP API, from .agent/config.yml.

    The change is shown first, and what goes with it: the list or document that `toolkeep add` wrote, what was
    accepted of its tools, its lines of toolkeep.lock, and the tokens of your sign-in. Records of its calls
    stay in the log. Its server is told nothing.
    """
    root = project_folder(project)
    state = open_state(root)
    removal = _planned(root, name, state)
    if not as_json:
        _show(removal)
    if not yes:
        check_agreed("Remove this?", as_json=as_json)
    _carry_out(removal, state)
    if as_json:
        print_json(_data(removal))
        return
    say_done(f"removed '{visible(name)}'")
    if removal.is_signed_in:
        say("  The server was not told. Revoke the access there too.")
    if any(not file.counts for file in read_configuration(root, state).files):
        say("  Accept the rest of the file to keep it in effect: toolkeep accept")


def _planned(root: Path, name: str, state: KeepState | None) -> Removal:
    """Plan the removal; raises `ImportRefused` if there is nothing to remove here."""
    check_name(name)
    before, document = _configuration(root)
    upstreams = _upstreams(document)
    if name not in upstreams and name in read_configuration(root, state).upstreams:
        raise ImportRefused(
            f"'{visible(name)}'",
            "is an upstream of your user configuration",
            hint="remove it from ~/.agent/config.yml",
        )
    plan = Removal(
        name=name,
        root=root,
        before=before,
        after=_without(before, document, name) if document and name in upstreams else before,
        listing=_listing(root, name, upstreams),
        tools=(),
        lock=None,
        is_signed_in=_is_signed_in(name, state),
    )
    pinned = sorted(pin.name for pin in state.pins() if pin.origin in plan.origins) if state else []
    plan = msgspec.structs.replace(plan, tools=tuple(pinned), lock=_unlocked(root, plan.origins))
    if plan.is_empty:
        known = ", ".join(map(visible, upstreams))
        hint = f"its upstreams: {known}" if known else "it has no upstreams"
        raise ImportRefused(f"'{visible(name)}'", "is not an upstream of this project", hint=hint)
    return plan


def _configuration(root: Path) -> tuple[str, Document | None]:
    path = root / ".agent" / "config.yml"
    check_inside(root, path.parent)
    try:
        text = path.read_text()
    except FileNotFoundError:
        return "", None
    except (OSError, UnicodeDecodeError) as error:
        raise FileUnreadable(str(path), "cannot be read") from error
    return text, read_yaml(text.encode(), str(path)) if text.strip() else None


def _upstreams(document: Document | None) -> dict[str, Any]:
    data = document.data if document is not None and isinstance(document.data, dict) else {}
    found = data.get("upstreams")
    return found if isinstance(found, dict) else {}


def _without(text: str, document: Document, name: str) -> str:
    """The text without the entry; `ImportRefused` if it cannot be removed."""
    place = document.key_place(f"/upstreams/{name}")
    lines = text.splitlines(keepends=True)
    first, last = place.line - 1, block_end(lines, place.line, place.column - 1)
    left = {key: entry for key, entry in document.data["upstreams"].items() if key != name}
    expected = {**document.data, "upstreams": left}
    del lines[first:last]
    if not left:
        head = document.key_place("/upstreams").line
        del lines[head - 1 : head]
        del expected["upstreams"]
    after = "".join(lines)
    if _read(after, document.path) != expected:
        reason = f"'{visible(name)}' cannot be removed automatically"
        raise ImportRefused(document.path, reason, hint="remove it by hand, then run this again")
    return after


def _read(text: str, path: str) -> Any:
    try:
        return (read_yaml(text.encode(), path).data or {}) if text.strip() else {}
    except FileUnreadable:
        return None


def _listing(root: Path, name: str, upstreams: dict[str, Any]) -> Path | None:
    """The file that `toolkeep add` wrote, unless another upstream uses it."""
    others = [entry for key, entry in upstreams.items() if key != name and isinstance(entry, dict)]
    named = {str(entry.get(kind)) for entry in others for kind in _KINDS}
    written = (f"{name}.mcp.json", f"{name}.openapi.json", f"{name}.openapi.yml")
    found = [root / ".agent" / file for file in written if file not in named]
    return next((path for path in found if path.is_file() and not path.is_symlink()), None)


def _unlocked(root: Path, origins: tuple[str, ...]) -> Lock | None:
    lock = read_lock_file(root)
    if lock is None or not lock.upstreams.keys() & set(origins):
        return None
    return of_origins(lock, lock.upstreams.keys() - set(origins))


def _is_signed_in(name: str, state: KeepState | None) -> bool:
    tokens = sign_ins_of(state)
    return tokens is not None and tokens.get(name) is not None


def _show(removal: Removal) -> None:
    for line in changed_lines(removal.path, removal.before, removal.after):
        say(line)
    if removal.besides:
        say("", "Also removed:")
        for words in removal.besides:
            say(f"  - {words}")


def _carry_out(removal: Removal, state: KeepState | None) -> None:
    """Remove; the configuration first: an upstream without its pins would be trusted anew."""
    try:
        if removal.before != removal.after:
            mode = stat.S_IMODE(removal.path.stat().st_mode)
            write_whole(removal.path, removal.after.encode(), mode=mode)
        if removal.lock is not None and removal.lock.upstreams:
            write_lock_file(removal.root, removal.lock)
        elif removal.lock is not None:
            (removal.root / LOCK_FILE).unlink()
        if removal.listing is not None:
            packages = packages_of(removal.listing)
            removal.listing.unlink()
            for digest in packages:
                discard_packages(removal.root, digest)
    except OSError as error:
        raise FileUnreadable(str(error.filename or removal.path), error.strerror or "is in use") from error
    forget_secrets(removal.root, removal.name)
    if state is not None and removal.tools:
        state.replace_pins(removal.origins, ())
    if removal.is_signed_in and (tokens := sign_ins_of(state)) is not None:
        tokens.forget(removal.name)


def _data(removal: Removal) -> dict[str, Any]:
    return {
        "upstream": removal.name,
        "path": str(removal.path),
        "tools": list(removal.tools),
        "listing": str(removal.listing) if removal.listing else None,
        "lock": removal.lock is not None,
        "sign_in": removal.is_signed_in,
    }
