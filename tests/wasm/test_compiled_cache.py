"""Compiled modules outlive the process, and nothing that somebody else put there becomes machine code."""

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.execution import wat
from toolkeep.wasm.compiled_cache import CompiledModules, cache_folder
from toolkeep.wasm.modules import Modules
from toolkeep.wasm.runtime import Runtime

KEY = b"k" * 32
HOME = {"HOME": "/home/ada"}


@pytest.fixture(scope="module")
def runtime() -> Runtime:
    return Runtime()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / ".cache" / "toolkeep" / "wasm"


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hashes of what is compiled rather than taken from the folder."""
    seen: list[str] = []
    plain = Modules._compile

    def compile_(modules: Modules, sha256: str, body: bytes) -> object:
        seen.append(sha256)
        return plain(modules, sha256, body)

    monkeypatch.setattr(Modules, "_compile", compile_)
    return seen


def load(runtime: Runtime, folder: Path, path: Path, key: bytes = KEY) -> str:
    return Modules(runtime, CompiledModules(folder, lambda: key)).load(str(path)).sha256


def kept(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def test_a_module_is_compiled_once_for_all_processes(
    runtime: Runtime, folder: Path, tmp_path: Path, compilations: list[str]
) -> None:
    path = wat.write(tmp_path, wat.ECHO)
    hashes = {load(runtime, folder, path) for _ in range(3)}
    assert set(compilations) == hashes
    assert len(compilations) == 1
    (file,) = kept(folder)
    assert [stat.S_IMODE(one.stat().st_mode) for one in (folder, file)] == [0o700, 0o600]


def test_a_module_is_read_again_when_its_file_changes(
    runtime: Runtime, tmp_path: Path, compilations: list[str]
) -> None:
    modules = Modules(runtime, None)
    path = str(wat.write(tmp_path, wat.ECHO))
    first, again = modules.load(path), modules.load(path)
    wat.write(tmp_path, wat.LIBRARY)
    changed = modules.load(path)
    assert first is again
    assert compilations == [first.sha256, changed.sha256]


@pytest.mark.parametrize(
    "change", [lambda body: body[:-1] + b"\0", lambda body: b"\0" + body[1:], lambda _: b""]
)
def test_a_file_that_somebody_changed_is_not_used(
    change: Callable[[bytes], bytes], runtime: Runtime, folder: Path, tmp_path: Path, compilations: list[str]
) -> None:
    path = wat.write(tmp_path, wat.ECHO)
    load(runtime, folder, path)
    (file,) = kept(folder)
    good = file.read_bytes()
    file.write_bytes(change(good))
    load(runtime, folder, path)
    assert len(compilations) == 2
    assert file.read_bytes() == good  # and it was put right


def test_a_file_that_was_moved_to_another_name_is_not_used(
    runtime: Runtime, folder: Path, tmp_path: Path, compilations: list[str]
) -> None:
    for body in (wat.ECHO, wat.LIBRARY):
        load(runtime, folder, wat.write(tmp_path, body))
    one, other = kept(folder)
    one.write_bytes(other.read_bytes())
    for body in (wat.ECHO, wat.LIBRARY):
        load(runtime, folder, wat.write(tmp_path, body))
    assert len(compilations) == 3


def test_what_another_keep_made_is_not_used(
    runtime: Runtime, folder: Path, tmp_path: Path, compilations: list[str]
) -> None:
    path = wat.write(tmp_path, wat.ECHO)
    load(runtime, folder, path)
    load(runtime, folder, path, key=b"other" * 8)
    assert len(compilations) == 2


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o755])
def test_a_folder_that_is_open_to_others_is_not_used(
    mode: int, runtime: Runtime, folder: Path, tmp_path: Path, compilations: list[str]
) -> None:
    path = wat.write(tmp_path, wat.ECHO)
    load(runtime, folder, path)
    folder.chmod(mode)
    load(runtime, folder, path)
    assert len(compilations) == 2


def test_a_file_that_is_open_to_others_or_a_link_is_not_used(
    runtime: Runtime, folder: Path, tmp_path: Path, compilations: list[str]
) -> None:
    path = wat.write(tmp_path, wat.ECHO)
    load(runtime, folder, path)
    (file,) = kept(folder)
    file.chmod(0o666)
    load(runtime, folder, path)
    file.rename(tmp_path / "moved")
    file.symlink_to(tmp_path / "moved")
    load(runtime, folder, path)
    assert len(compilations) == 3


def test_the_oldest_files_are_forgotten(
    runtime: Runtime, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkeep.wasm.compiled_cache.CACHED_MODULES", 2)
    for text in ("1", "2", "3"):
        load(runtime, folder, wat.write(tmp_path, wat.speaks(text)))
    assert len(kept(folder)) == 2


def test_a_folder_that_cannot_be_made_does_not_stop_a_call(
    runtime: Runtime, tmp_path: Path, compilations: list[str]
) -> None:
    (tmp_path / "file").touch()
    load(runtime, tmp_path / "file" / "toolkeep" / "wasm", wat.write(tmp_path, wat.ECHO))
    assert len(compilations) == 1


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        (HOME, "/home/ada/.cache/toolkeep/wasm"),
        ({**HOME, "XDG_CACHE_HOME": "/var/cache/ada"}, "/var/cache/ada/toolkeep/wasm"),
        ({**HOME, "XDG_CACHE_HOME": "here"}, "/home/ada/.cache/toolkeep/wasm"),
        ({}, None),
    ],
)
def test_the_folder_follows_from_the_environment(environment: dict[str, str], folder: str | None) -> None:
    assert cache_folder(environment) == (folder and Path(folder))
