"""Codes that sign a person in: once, in time, and never written down."""

import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from toolkeep.limits import SIGN_IN_CODES, SIGN_IN_SECONDS
from toolkeep.storage.sqlite.sign_in_codes import FileSignInCodes, MemorySignInCodes, SignInCodes


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


Make = Callable[[Path, Clock], SignInCodes]
KINDS = pytest.mark.parametrize(
    "make",
    [FileSignInCodes, lambda _, clock: MemorySignInCodes(clock)],
    ids=["in files", "in memory"],
)


@KINDS
@pytest.mark.spec("WEB-2")
def test_a_code_counts_once(tmp_path: Path, make: Make) -> None:
    codes = make(tmp_path, Clock())
    code, other = codes.make(), codes.make()
    assert [codes.use(code), codes.use(code), codes.use(other)] == [True, False, True]


@KINDS
def test_a_code_counts_for_five_minutes(tmp_path: Path, make: Make) -> None:
    clock = Clock()
    codes = make(tmp_path, clock)
    early, late = codes.make(), codes.make()
    clock.now += SIGN_IN_SECONDS - 1
    assert codes.use(early)
    clock.now += 1
    assert not codes.use(late)


@KINDS
@pytest.mark.parametrize("code", ["", "x", "../" * 14 + "x", "a" * 43, "\ud800" * 43, "é" * 43])
def test_what_is_no_code_counts_for_nothing(tmp_path: Path, make: Make, code: str) -> None:
    assert not make(tmp_path, Clock()).use(code)


def test_another_process_of_the_keep_uses_a_code_once(tmp_path: Path) -> None:
    code = FileSignInCodes(tmp_path).make()
    assert [FileSignInCodes(tmp_path).use(code) for _ in range(2)] == [True, False]


def test_the_code_itself_is_not_written_down(tmp_path: Path) -> None:
    code = FileSignInCodes(tmp_path).make()
    (file,) = (tmp_path / "sign-in").iterdir()
    assert code not in file.name + file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_so_many_codes_are_kept_and_no_more(tmp_path: Path) -> None:
    codes = FileSignInCodes(tmp_path)
    for _ in range(SIGN_IN_CODES + 5):
        codes.make()
    assert len(list((tmp_path / "sign-in").iterdir())) == SIGN_IN_CODES


def test_a_state_folder_that_a_code_made_is_this_users_alone(tmp_path: Path) -> None:
    state = tmp_path / "home" / "state"
    FileSignInCodes(state).make()
    assert {stat.S_IMODE(path.stat().st_mode) for path in (state.parent, state)} == {0o700}


def test_a_code_that_is_used_while_another_is_made_is_in_nobodys_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = FileSignInCodes(tmp_path)
    codes.make()
    listed = Path.iterdir

    def list_and_use(folder: Path) -> Iterator[Path]:
        for path in list(listed(folder)):
            path.unlink()
            yield path

    monkeypatch.setattr(Path, "iterdir", list_and_use)
    assert codes.use(codes.make())
