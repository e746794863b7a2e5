"""Which paths an observed server may be shown, and which may be offered to it: the project, and what a person
named. Credentials, the configuration and the keep's state are never among them.

Input: paths that a server named, so hostile text. Paths are compared as real paths: a symlink in the project
that leads elsewhere counts as where it leads.
"""

import os
import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from toolkeep.definitions.capability import Capability
from toolkeep.sandbox.plan import SYSTEM, interpreter_paths
from toolkeep.sandbox.trusted_paths import is_within

_CREDENTIALS: Final = """
    .ssh .gnupg .aws .azure .kube .docker .oci .password-store .vault-token .netrc .pgpass .my.cnf .npmrc
    .yarnrc.yml .pypirc .git-credentials .terraformrc .terraform.d .boto .s3cfg .databrickscfg .mozilla
    .thunderbird id_rsa id_dsa id_ecdsa id_ed25519 keyrings Keychains
"""
"""Names of files and folders in which programs keep credentials, wherever they lie."""
_CREDENTIAL_NAMES: Final = frozenset(_CREDENTIALS.split())
_CREDENTIAL_FILE: Final = re.compile(
    r"\.env(\..+)?|.+\.(pem|key|p12|pfx|kdbx|keystore|jks)|credentials(\.\w+)?"
)
_OF_PROGRAMS: Final = (".config", ".local", ".cache", ".var", "snap", "Library")
"""Folders of a home in which other programs keep their data, tokens included."""
_OURS: Final = ".agent"
_PACKAGE_MANAGERS: Final = frozenset(
    ("npm", "npx", "pnpm", "yarn", "bun", "bunx", "pip", "pip3", "pipx", "uv", "uvx")
)
"""Programs that download code, past the versions that are pinned for a server."""
_UNTOLD: Final = ("/box", "/dev", "/etc", "/proc", "/run", "/sys", "/tmp", "/var/run")  # noqa: S108 -- names only
"""Where every runtime looks around, and where the sandbox has folders of its own."""
_WALKED: Final = 50_000
"""Names that are looked at before a folder is offered; a larger one is not."""
_PACKAGES: Final = frozenset(("node_modules", ".venv", "venv", "__pycache__", ".git"))
"""Folders of others' files, where test data is called like credentials."""
HOLDS: Final = "may hold credentials"
_USES: Final = frozenset(("read", "list", "write"))


class ObservedProject(msgspec.Struct, frozen=True, kw_only=True):
    """The folders around one server, all of them real paths."""

    root: str
    home: str
    state: str
    """The keep's state; empty if there is none."""
    code: tuple[str, ...]
    """What the server consists of."""
    system: tuple[str, ...]
    """What every server sees beside it."""
    asked: tuple[str, ...]
    """Paths that the person wrote themselves, in the command or in a grant."""
    held: tuple[Capability, ...]
    """What the person granted."""
    programs: tuple[str, ...]
    """What it may start already: the server itself, and what the person granted."""

    @classmethod
    def of(
        cls,
        base: str,
        state: str,
        code: Iterable[str],
        asked: Iterable[str],
        held: Iterable[Capability],
        programs: Iterable[str],
    ) -> "ObservedProject":
        """Resolve the folders."""
        return cls(
            root=os.path.realpath(base),
            home=os.path.realpath(os.path.expanduser("~")),
            state=os.path.realpath(state) if state else "",
            code=tuple(code),
            system=(*SYSTEM, *interpreter_paths()),
            asked=tuple(path for path in asked if path != "/"),
            held=tuple(held),
            programs=tuple(programs),
        )

    # --- what is shown ------------------------------------------------------------------------------

    def stand_ins(self, others: Iterable[str]) -> tuple[str, ...]:
        """Folders in whose place a copy of their names is shown, and empty ones for `others`."""
        wanted = {self.root, *others, *(path for path in self.asked if os.path.isdir(path))}
        return tuple(sorted(path for path in wanted if not self.is_shown(path) and not self.refusal(path)))

    def unlisted(self) -> frozenset[str]:
        """Paths whose names are not shown in a stand-in."""
        folders = {self.home, self.root, *self.asked}
        hidden = (*_CREDENTIAL_NAMES, *_OF_PROGRAMS, _OURS)
        names = {f"{folder}/{name}" for folder in folders for name in hidden}
        return frozenset({*names, *({self.state} if self.state else ())})

    def may_be_tried(self, program: str) -> bool:
        """Whether an observed server may start another program: one of the system, or its own."""
        real = os.path.realpath(program)
        is_known = is_in(real, SYSTEM) or is_in(real, self.code)
        is_new = is_program(real) and not is_in(real, self.programs)
        return is_known and is_new and not self.is_package_manager(program)

    def is_package_manager(self, program: str) -> bool:
        """Whether a program installs packages: servers look for a newer version of themselves with one."""
        return os.path.basename(program) in _PACKAGE_MANAGERS and not is_in(program, self.code)

    def folders_outside(self, named: Iterable[tuple[str, str]], most: int) -> set[str]:
        """Folders that it wanted and that are nobody's to offer; an empty one lets it go on."""
        found: set[str] = set()
        for what, path in sorted(named):
            folder = _nearest_folder(os.path.realpath(path)) if what in _USES else "/"
            is_theirs = self.area(path) or self.is_untold(path) or self.is_untold(folder)
            if folder != "/" and not is_theirs and not self.refusal(path) and not self.refusal(folder):
                found.add(folder)
            if len(found) == most:
                break
        return found

    # --- what is offered ----------------------------------------------------------------------------

    def area(self, path: str) -> str:
        """What a path really lies in: the project, or what the person named; else empty."""
        real = os.path.realpath(path)
        return next((area for area in (*self.asked, self.root) if is_within(real, area)), "")

    def is_untold(self, path: str) -> bool:
        """Whether a path is none of the person's: every program looks there, or it is shown anyway."""
        return self.is_shown(path) or (is_in(path, _UNTOLD) and not is_within(path, self.home))

    def is_above_code(self, path: str) -> bool:
        """Whether a runtime looks at a folder on its way to the code."""
        return any(is_within(code, path) for code in (*self.code, self.root))

    def is_held(self, path: str, *, for_writing: bool) -> bool:
        """Whether the person's grant covers a path already."""
        kinds = ("fs.write",) if for_writing else ("fs.read", "fs.write")
        scopes = (os.path.expanduser(one.scope) for one in self.held if one.kind in kinds)
        return is_in(path, [os.path.realpath(os.path.join(self.root, scope)) for scope in scopes])

    def refusal(self, path: str) -> str:
        """Why a path is never offered; empty if it may be."""
        real = os.path.realpath(path)
        for one in (path, real):
            if self.state and is_within(one, self.state):
                return "is the state of toolkeep"
            parts = one.split("/")
            is_named_so = not _CREDENTIAL_NAMES.isdisjoint(parts)
            if is_named_so or _CREDENTIAL_FILE.fullmatch(parts[-1]) or self._is_of_programs(one):
                return HOLDS
            if _OURS in parts:
                return "is the configuration of toolkeep"
        return ""

    def _is_of_programs(self, path: str) -> bool:
        folders = [f"{self.home}/{name}" for name in _OF_PROGRAMS]
        return is_in(path, [folder for folder in folders if not is_within(self.root, folder)])

    def refusal_inside(self, folder: str) -> str:
        """Why a folder is not offered as a whole: what lies in it."""
        if self.state and is_within(self.state, folder):
            return "has the state of toolkeep in it"
        for count, path in enumerate(_walk(folder)):
            if count >= _WALKED:
                return f"has more than {_WALKED:,} files, too many to look for credentials"
            if self.refusal(path) == HOLDS:
                return f"may have credentials in it ({self.shown(path)})"
        return ""

    def shown(self, path: str) -> str:
        """A path as a grant names it: from the project, from the home folder, or whole. Not escaped."""
        for folder, prefix in ((self.root, "."), (self.home, "~")):
            if is_within(path, folder):
                return f"{prefix}/{os.path.relpath(path, folder)}" if path != folder else prefix
        return path

    def is_shown(self, path: str) -> bool:
        """Whether every server sees a path: the system and its own code."""
        return is_in(path, self.code) or is_in(path, self.system)


def is_in(path: str, folders: Iterable[str]) -> bool:
    """Whether a path is one of some folders or lies below one."""
    return any(is_within(path, folder) for folder in folders)


def is_program(path: str) -> bool:
    """Whether a path is a file that can be started."""
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _nearest_folder(path: str) -> str:
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def _walk(folder: str) -> Iterator[str]:
    for above, folders, files in os.walk(folder):
        yield from (f"{above}/{name}" for name in (*folders, *files))
        folders[:] = [name for name in folders if name not in _PACKAGES]
