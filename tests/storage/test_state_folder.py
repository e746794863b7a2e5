"""The folder of a keep's state counts only outside the project, and only if it is this user's alone."""

import os
import stat
from pathlib import Path

import pytest

from toolkeep import Code, open_keep
from toolkeep.errors import StateUnusable
from toolkeep.storage.state_folder import check_private, make_private, state_folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def unusable(folder: Path) -> StateUnusable:
    with pytest.raises(StateUnusable) as caught:
        make_private(folder)
    assert (caught.value.code, caught.value.path) == (Code.STATE_UNUSABLE, str(folder))
    return caught.value


# --- where ---------------------------------------------------------------------------------------


def test_the_folder_lies_below_the_home_by_default(project: Path, home: Path) -> None:
    folder = state_folder(project, {}, home)
    assert folder is not None
    assert folder.parent == home / ".local" / "state" / "toolkeep"


def test_xdg_state_home_goes_over_the_home(project: Path, home: Path, tmp_path: Path) -> None:
    folder = state_folder(project, {"XDG_STATE_HOME": str(tmp_path / "xdg")}, home)
    assert folder is not None
    assert folder.parent == tmp_path / "xdg" / "toolkeep"


def test_toolkeep_home_is_the_folder_itself_and_goes_over_everything(
    project: Path, home: Path, tmp_path: Path
) -> None:
    named = {"TOOLKEEP_HOME": str(tmp_path / "mine"), "XDG_STATE_HOME": str(tmp_path / "xdg")}
    assert state_folder(project, named, home) == tmp_path / "mine"


def test_a_user_without_a_home_remembers_nothing(project: Path) -> None:
    assert state_folder(project, {}, None) is None
    assert state_folder(project, {"TOOLKEEP_HOME": "", "XDG_STATE_HOME": ""}, None) is None


def test_each_project_has_a_folder_of_its_own_and_always_the_same(project: Path, home: Path) -> None:
    other = project.parent / "other"
    other.mkdir()
    link = project.parent / "link"
    link.symlink_to(project)
    mine = state_folder(project, {}, home)
    assert state_folder(other, {}, home) != mine
    assert state_folder(link, {}, home) == mine
    assert state_folder(other / ".." / "project", {}, home) == mine


def test_asking_where_makes_nothing(project: Path, home: Path) -> None:
    state_folder(project, {}, home)
    assert (list(home.iterdir()), list(project.iterdir())) == ([], [])


@pytest.mark.parametrize("variable", ["TOOLKEEP_HOME", "XDG_STATE_HOME"])
@pytest.mark.parametrize("place", [".", "state", ".agent/state", "../project/state", "../link/state"])
def test_a_folder_inside_the_project_is_refused(project: Path, home: Path, variable: str, place: str) -> None:
    (project.parent / "link").symlink_to(project)
    with pytest.raises(StateUnusable) as caught:
        state_folder(project, {variable: str(project / place)}, home)
    assert caught.value.hint == "set TOOLKEEP_HOME to a folder outside"


def test_a_folder_that_leads_into_the_project_is_refused(project: Path, home: Path) -> None:
    (home / ".local").symlink_to(project)
    with pytest.raises(StateUnusable):
        state_folder(project, {}, home)


def test_a_folder_whose_name_only_begins_like_the_project_is_outside(project: Path, home: Path) -> None:
    beside = project.parent / "project-state"
    assert state_folder(project, {"TOOLKEEP_HOME": str(beside)}, home) == beside


def test_the_home_folder_can_be_opened_as_a_project_of_its_own(home: Path) -> None:
    folder = state_folder(home, {}, home)
    assert folder is not None
    assert folder.parent == home / ".local" / "state" / "toolkeep"


def test_a_keep_opens_in_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path.home())
    assert "agent_hello_world" in open_keep()


@pytest.mark.parametrize("below", ["", "state"])
@pytest.mark.parametrize("variable", ["TOOLKEEP_HOME", "XDG_STATE_HOME", "HOME"])
def test_a_link_that_leads_in_a_circle_is_a_place_like_any_other(
    project: Path, home: Path, variable: str, below: str
) -> None:
    loop = home / "loop"
    loop.symlink_to(loop)
    folder = state_folder(project, {variable: str(loop / below)}, loop if variable == "HOME" else home)
    assert folder is not None
    assert loop in (folder, *folder.parents)
    unusable(folder)


def test_a_project_behind_a_link_that_leads_in_a_circle_has_a_folder_too(home: Path) -> None:
    loop = home / "loop"
    loop.symlink_to(loop)
    assert state_folder(loop, {}, home) is not None


@pytest.mark.parametrize("name", ["a" * 300, "a/" * 3000], ids=["name", "path"])
def test_too_long_a_name_is_refused_when_the_folder_is_made(project: Path, home: Path, name: str) -> None:
    folder = state_folder(project, {"TOOLKEEP_HOME": str(home / name)}, home)
    assert folder is not None
    assert "cannot be made: File name too long" in unusable(folder).message


def test_a_project_whose_name_is_not_utf_8_has_a_folder_of_its_own(tmp_path: Path, home: Path) -> None:
    odd = [
        state_folder(Path(os.fsdecode(os.fsencode(tmp_path) + end)), {}, home) for end in (b"/\xff", b"/\xfe")
    ]
    assert len({*odd, None}) == 3


# --- whose ---------------------------------------------------------------------------------------


def test_a_folder_is_made_for_this_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    before = os.umask(0)
    try:
        make_private(folder)
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    make_private(folder)


@pytest.mark.parametrize("mode", [0o701, 0o710, 0o704, 0o740, 0o720, 0o750, 0o755, 0o777, 0o1777])
def test_a_folder_that_is_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(mode)
    error = unusable(folder)
    assert error.message == f"{folder}: is open to other users"
    assert error.hint == f"run: chmod 700 {folder}"
    assert stat.S_IMODE(folder.stat().st_mode) == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, 12345)
    assert unusable(folder).message == f"{folder}: belongs to another user"


def test_a_folder_that_this_user_does_not_own_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    assert unusable(folder).message == f"{folder}: belongs to another user"


def test_a_link_is_refused_even_to_a_private_folder(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    link = tmp_path / "state"
    link.symlink_to(tmp_path / "real")
    assert unusable(link).message == f"{link}: is not a folder"


def test_a_link_to_nowhere_is_refused_and_not_followed(tmp_path: Path) -> None:
    link = tmp_path / "state"
    link.symlink_to(tmp_path / "nowhere")
    unusable(link)
    assert not (tmp_path / "nowhere").exists()


def test_a_file_in_its_place_is_refused_and_stays(tmp_path: Path) -> None:
    file = tmp_path / "state"
    file.write_text("mine")
    assert unusable(file).hint == "move it away, or set TOOLKEEP_HOME"
    assert file.read_text() == "mine"
    with pytest.raises(StateUnusable):
        check_private(file)


def test_a_folder_below_a_file_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert "cannot be made: Not a directory" in unusable(tmp_path / "file" / "state").message
