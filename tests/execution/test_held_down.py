"""What no tool may write is held down, also deep inside a folder that it may write."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from toolkeep.execution import held_down as module
from toolkeep.sandbox.trusted import TrustedPaths


def held_down(folder: Path, *, is_deep: bool = True) -> list[str]:
    found = module.held_down(str(folder), TrustedPaths(), "agent", is_deep=is_deep)
    return sorted(path.removeprefix(f"{folder}/") for path in set(found))


def repository(path: Path, *parts: str) -> None:
    for name in parts:
        (path / ".git" / name).mkdir(parents=True)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return Path(os.path.realpath(tmp_path))


def test_nothing_is_held_down_where_nothing_is_protected(work: Path) -> None:
    (work / "src" / "git").mkdir(parents=True)
    assert held_down(work) == []


@pytest.mark.spec("POL-7")
def test_the_configuration_and_the_lock_are_held_down(work: Path) -> None:
    (work / ".agent").mkdir()
    (work / "sub").mkdir()
    (work / "sub" / "toolkeep.lock").touch()
    assert held_down(work) == [".agent", "sub/", "sub/toolkeep.lock"]


@pytest.mark.spec("POL-7")
def test_a_repository_is_held_down_whole(work: Path) -> None:
    repository(work / "a" / "b", "hooks", "config", "objects")
    assert held_down(work) == ["a/", "a/b/", "a/b/.git"]


def test_a_repository_that_lies_elsewhere_is_held_down_by_its_file(work: Path) -> None:
    (work / ".git").write_text("gitdir: /elsewhere")
    assert held_down(work) == [".git"]


@pytest.mark.parametrize("name", [".agent", ".git", "toolkeep.lock", ".Git"])
def test_a_link_of_a_protected_name_cannot_be_held_down(name: str, work: Path) -> None:
    (work / name).symlink_to("/elsewhere")
    with pytest.raises(ValueError, match=f"a link named '{name}'"):
        held_down(work)


def test_of_a_repository_that_is_written_hooks_and_config_stay_as_they_are(work: Path) -> None:
    repository(work, "hooks", "config", "objects")
    assert {f"{work}/.git/hooks", f"{work}/.git/config"} <= set(module.of_git(f"{work}/.git"))


def test_a_repository_with_a_link_is_not_written(work: Path) -> None:
    repository(work, "hooks", "config", "objects")
    (work / ".git" / "logs").symlink_to(work)
    with pytest.raises(ValueError, match="holds the link 'logs'"):
        module.of_git(f"{work}/.git")


@pytest.mark.parametrize("missing", ["hooks", "config"])
def test_a_repository_in_which_hooks_or_a_config_could_be_made_is_not_written(
    missing: str, work: Path
) -> None:
    repository(work, *{"hooks", "config", "objects"} - {missing})
    with pytest.raises(ValueError, match="no hooks or no config"):
        module.of_git(f"{work}/.git")


def test_a_folder_that_is_too_large_to_look_through_is_not_granted(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PROTECTED_ENTRIES", 2)
    for number in range(3):
        (work / str(number)).touch()
    with pytest.raises(ValueError, match="too much to look through"):
        held_down(work)
    assert held_down(work, is_deep=False) == []


def test_a_folder_is_not_granted_with_one_that_cannot_be_looked_into(work: Path) -> None:
    """A tool could have closed it, or can open it again: both are the same user."""
    (work / "out" / "closed" / ".git").mkdir(parents=True)
    (work / "out" / "closed").chmod(0)
    assert in_child_as_nobody(lambda: held_down(Path("out")), work) == "cannot be looked into"
    (work / "out" / "closed").chmod(0o700)


def in_child_as_nobody(act: Callable[[], object], folder: Path) -> str:
    """The words that matter of what it raises, as a user whom modes hold back."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.chdir(folder)  # root alone may pass the folders above
            if os.geteuid() == 0:
                os.setresuid(65534, 65534, 65534)
            act()
        except ValueError as error:
            os.write(into, b"cannot be looked into" if "cannot be looked into" in str(error) else b"other")
        finally:
            os._exit(0)
    os.close(into)
    os.waitpid(child, 0)
    return os.read(out, 100).decode()
