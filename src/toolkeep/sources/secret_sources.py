"""Secrets of an upstream, read from the environment, a file, the keyring or the state when a call needs one.

Nothing is read when a keep opens, and nothing is cached: a rotated secret is used by the next call. The
values go to the tool's runner, and never into a definition, record, log or error.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from toolkeep.config.settings import SecretSource
from toolkeep.errors import SecretUnavailable

_FILE_BYTES: Final = 64 * 1024
"""Larger than any key or token; a wrong path must not fill the memory."""


class UpstreamSecrets(Mapping[str, str]):
    """The secrets of one upstream by name."""

    def __init__(self, sources: Mapping[str, SecretSource], stored: Path | None = None) -> None:
        """`stored` is the folder in the state of the keep with the secrets of this upstream."""
        self._sources = dict(sources)
        self._stored = stored

    def __getitem__(self, name: str) -> str:
        if self._sources[name].kind == "stored":
            return self._from_state(name, self._sources[name].where)
        return _READERS[self._sources[name].kind](name, self._sources[name].where)

    def __iter__(self) -> Iterator[str]:
        """Those that are available now."""
        for name in self._sources:
            try:
                self[name]
            except SecretUnavailable:
                continue
            yield name

    def __len__(self) -> int:
        return len(self._sources)

    def _from_state(self, name: str, where: str) -> str:
        # A separator would name the secret of another upstream, or any file.
        if self._stored is None or "/" in where or where.startswith("."):
            raise SecretUnavailable(name, reason="nothing is stored for this upstream")
        return _from_file(name, str(self._stored / where))

    def only(self, names: Iterable[str]) -> "UpstreamSecrets":
        """Only those of these names."""
        found = {name: self._sources[name] for name in names if name in self._sources}
        return UpstreamSecrets(found, self._stored)

    def __repr__(self) -> str:
        """Without values."""
        return f"<{len(self)} secrets>"


def _from_environment(name: str, variable: str) -> str:
    value = os.environ.get(variable)
    if not value:
        reason = f"the environment variable {variable} is not set"
        raise SecretUnavailable(name, reason=reason, hint="set it where the keep is started")
    return value


def _from_file(name: str, path: str) -> str:
    try:
        # O_NONBLOCK: a FIFO in its place would block the call for ever.
        descriptor = os.open(Path(path).expanduser(), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123 -- opened without blocking
            status = os.fstat(file.fileno())
            # A file that others may write lets them choose which credentials are used.
            if not stat.S_ISREG(status.st_mode) or status.st_mode & stat.S_IWOTH:
                raise SecretUnavailable(
                    name, reason="its file is not a regular file, or everyone may write it"
                )
            text = file.read(_FILE_BYTES + 1).decode()
    except (OSError, UnicodeDecodeError, RuntimeError):
        raise SecretUnavailable(
            name, reason="its file cannot be read", hint="see `secrets` of the upstream"
        ) from None
    if not text.strip() or len(text) > _FILE_BYTES:
        raise SecretUnavailable(name, reason="its file is empty, or too large")
    return text.removesuffix("\n").removesuffix("\r")


def _from_keyring(name: str, where: str) -> str:
    service, _, user = where.partition("/")
    try:
        import keyring
    except ImportError:
        hint = "install toolkeep[keyring]"
        raise SecretUnavailable(name, reason="there is no keyring package", hint=hint) from None
    try:
        value = keyring.get_password(service, user)
    except (Exception, SystemExit):  # noqa: BLE001 -- a foreign back end, whose message may hold anything
        raise SecretUnavailable(name, reason="the keyring did not give it") from None
    if not value:
        reason = "the keyring does not have it"
        raise SecretUnavailable(name, reason=reason, hint=f"run: keyring set {service} {user}")
    return str(value)


_READERS: Final = {"env": _from_environment, "file": _from_file, "keyring": _from_keyring}
