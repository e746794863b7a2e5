"""What no tool may write is held down, also deep inside a folder that it may write."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolkeep.execution import read_only_paths as module
from toolkeep.sandbox.trusted_paths import ReplacedFile, TrustedPath, TrustedPaths, of_process, resolved


def read_only_inside(folder: Path, *, is_deep: bool = True) -> list[str]:
    found = module.read_only_inside(str(folder), TrustedPaths(), "agent", is_deep=is_deep)
    return sorted(path.removeprefix(f"{folder}/") for path in set(found))


def repository(path: Path, *parts: str) -> None:
    for name in parts:
        (path / ".git" / name).mkdir(parents=True)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return Path(os.path.realpath(tmp_path))


def test_nothing_is_held_down_where_nothing_is_protected(work: Path) -> None:
    (work / "src" / "git").mkdir(parents=True)
    assert read_only_inside(work) == []


@pytest.mark.spec("POL-7")
def test_the_configuration_and_the_lock_are_held_down(work: Path) -> None:
    (work / ".agent").mkdir()
    (work / "sub").mkdir()
    (work / "sub" / "toolkeep.lock").touch()
    assert read_only_inside(work) == [".agent", "sub/", "sub/toolkeep.lock"]


@pytest.mark.spec("POL-7")
def test_a_repository_is_held_down_whole(work: Path) -> None:
    repository(work / "a" / "b", "hooks", "config", "objects")
    assert read_only_inside(work) == ["a/", "a/b/", "a/b/.git"]


def test_a_repository_that_lies_elsewhere_is_held_down_by_its_file(work: Path) -> None:
    (work / ".git").write_text("gitdir: /elsewhere")
    assert read_only_inside(work) == [".git"]


@pytest.mark.parametrize("name", [".agent", ".git", "toolkeep.lock", ".Git"])
def test_a_link_of_a_protected_name_cannot_be_held_down(name: str, work: Path) -> None:
    (work / name).symlink_to("/elsewhere")
    with pytest.raises(ValueError, match=f"a link named '{name}'"):
        read_only_inside(work)


def test_of_a_repository_that_is_written_hooks_and_config_stay_as_they_are(work: Path) -> None:
    repository(work, "hooks", "config", "objects")
    assert {f"{work}/.git/hooks", f"{work}/.git/config"} <= set(module.protected_git_paths(f"{work}/.git"))


def test_a_repository_with_a_link_is_not_written(work: Path) -> None:
    repository(work, "hooks", "config", "objects")
    (work / ".git" / "logs").symlink_to(work)
    with pytest.raises(ValueError, match="contains the link 'logs'"):
        module.protected_git_paths(f"{work}/.git")


@pytest.mark.parametrize("missing", ["hooks", "config"])
def test_a_repository_in_which_hooks_or_a_config_could_be_made_is_not_written(
    missing: str, work: Path
) -> None:
    repository(work, *{"hooks", "config", "objects"} - {missing})
    with pytest.raises(ValueError, match="no hooks or no config"):
        module.protected_git_paths(f"{work}/.git")


def test_a_folder_that_is_too_large_to_look_through_is_not_granted(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PROTECTED_ENTRIES", 2)
    for number in range(3):
        (work / str(number)).touch()
    with pytest.raises(ValueError, match="too many files to check"):
        read_only_inside(work)
    assert read_only_inside(work, is_deep=False) == []


def test_what_is_installed_in_a_folder_that_is_too_large_is_held_down_whole(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository(work / "src", "hooks")
    for folder in (".venv/lib", "web/node_modules/left-pad"):
        (work / folder).mkdir(parents=True)
        (work / folder / "a").touch()
    (work / ".venv" / "pyvenv.cfg").touch()
    repository(work / ".venv", "hooks")
    assert read_only_inside(work) == [".venv/", ".venv/.git", "src/", "src/.git"]
    monkeypatch.setattr(module, "PROTECTED_ENTRIES", 7)
    assert read_only_inside(work) == [".venv", "src/", "src/.git", "web/", "web/node_modules"]
    monkeypatch.setattr(module, "PROTECTED_ENTRIES", 4)
    with pytest.raises(ValueError, match="too many files to check"):
        read_only_inside(work)


def test_a_folder_is_not_granted_with_one_that_cannot_be_looked_into(work: Path) -> None:
    """A tool could have closed it, or can open it again: both are the same user."""
    (work / "out" / "closed" / ".git").mkdir(parents=True)
    (work / "out" / "closed").chmod(0)
    assert in_child_as_nobody(lambda: read_only_inside(Path("out")), work) == "cannot be looked into"
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


# --- the trusted set -------------------------------------------------------------------------------


def trusted(work: Path, *names: str) -> TrustedPaths:
    return TrustedPaths(code=lambda: [TrustedPath(str(work / name), "the code of a tool") for name in names])


def held_with(work: Path, paths: TrustedPaths) -> list[str]:
    found = module.read_only_inside(str(work), paths, "agent", is_deep=True)
    return sorted(path.removeprefix(f"{work}/") for path in set(found))


@pytest.mark.spec("SBX-6")
def test_the_trusted_set_is_held_down_with_the_folders_above_it(work: Path) -> None:
    (work / "a" / "b").mkdir(parents=True)
    (work / "a" / "b" / "tool.py").touch()
    assert held_with(work, trusted(work, "a/b/tool.py")) == ["a/", "a/b/", "a/b/tool.py"]


@pytest.mark.spec("SBX-6")
def test_a_folder_inside_the_trusted_set_is_not_granted(work: Path) -> None:
    (work / "package").mkdir()
    with pytest.raises(ValueError, match="belongs to what toolkeep trusts, the code of a tool"):
        list(module.read_only_inside(str(work / "package"), trusted(work, "package"), "agent", is_deep=False))


@pytest.mark.spec("SBX-6")
def test_what_cannot_be_held_down_because_it_does_not_exist_refuses_the_grant(work: Path) -> None:
    with pytest.raises(
        ValueError, match=r"'tool\.py' could be made in its folder, and is the code of a tool"
    ):
        held_with(work, trusted(work, "tool.py"))


@pytest.mark.spec("SBX-6")
def test_a_cache_of_bytecode_is_made_so_that_it_can_be_held_down(work: Path) -> None:
    (work / "tool.py").touch()
    assert held_with(work, trusted(work, "tool.py", "__pycache__")) == ["__pycache__", "tool.py"]
    assert (work / "__pycache__").is_dir()


@pytest.mark.spec("SBX-6", "POL-7")
@pytest.mark.parametrize("name", [".agent", ".acode"])
def test_the_home_is_not_granted_while_the_users_configuration_could_be_made(
    name: str, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the user counts without being accepted."""
    monkeypatch.setenv("HOME", str(work))
    (work / {".agent": ".acode", ".acode": ".agent"}[name]).mkdir()
    with pytest.raises(ValueError, match=f"'{name}' could be made in its folder"):
        held_with(work, TrustedPaths())


@pytest.mark.spec("SBX-6")
def test_a_link_on_the_way_to_the_environment_refuses_the_grant(work: Path) -> None:
    """Nothing can be mounted on a link: a tool could put a folder of its own in its place."""
    (work / "real").mkdir()
    (work / "env").symlink_to("real")
    process = of_process()._replace(links=(TrustedPath(str(work / "env"), "the environment of Python"),))
    paths = TrustedPaths()
    paths._process = process
    with pytest.raises(
        ValueError, match="holds the link 'env', by which the environment of Python is reached"
    ):
        held_with(work, paths)


# --- files that a configuration names --------------------------------------------------------------


def configured(*files: TrustedPath) -> TrustedPaths:
    found = resolved(files)
    return TrustedPaths(files=lambda: [found])


@pytest.mark.spec("SBX-6")
def test_a_configured_file_is_held_down_with_the_folders_above_it(work: Path) -> None:
    (work / "secrets").mkdir()
    (work / "secrets" / "token").touch()
    paths = configured(TrustedPath(str(work / "secrets" / "token"), "the file of secret 'x'"))
    assert held_with(work, paths) == ["secrets/", "secrets/token"]


@pytest.mark.spec("SBX-6")
def test_a_link_on_the_way_to_a_configured_file_refuses_the_grant(work: Path) -> None:
    (work / "secrets").symlink_to("/elsewhere")
    paths = configured(TrustedPath(str(work / "secrets" / "token"), "the file of secret 'x'"))
    with pytest.raises(
        ValueError, match="holds the link 'secrets', by which the file of secret 'x' is reached"
    ):
        held_with(work, paths)


@pytest.mark.spec("SBX-6")
def test_a_configured_file_that_could_be_made_refuses_the_grant(work: Path) -> None:
    paths = configured(TrustedPath(str(work / "token"), "the file of secret 'x'"))
    with pytest.raises(
        ValueError, match="'token' could be made in its folder, and is the file of secret 'x'"
    ):
        held_with(work, paths)


@pytest.mark.spec("SBX-6")
def test_of_a_file_that_the_host_replaces_the_folder_is_held_down(work: Path) -> None:
    """A rename over a file ends the mounts on it, in every namespace. The file need not be there yet."""
    (work / "out" / "deep").mkdir(parents=True)
    paths = configured(ReplacedFile(str(work / "out" / "checkpoint"), "the file of checkpoints"))
    assert held_with(work, paths) == ["out"]
    assert held_with(work / "out" / "deep", paths) == []
    with pytest.raises(ValueError, match="is that of 'checkpoint', the file of checkpoints, which toolkeep"):
        held_with(work / "out", paths)


@pytest.mark.spec("SBX-6")
def test_a_link_on_the_way_to_the_state_refuses_the_grant(work: Path) -> None:
    """Replaced, it would have the next keep believe another state."""
    (work / "var").symlink_to("/elsewhere")
    with pytest.raises(ValueError, match="holds the link 'var', by which the state of toolkeep is reached"):
        held_with(work, TrustedPaths(str(work / "var" / "state")))


# --- large and hostile trees -----------------------------------------------------------------------


def test_a_folder_that_did_not_change_is_not_listed_again(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "a" / ".git").mkdir(parents=True)
    later = time.time_ns() + 10**10
    monkeypatch.setattr(time, "time_ns", lambda: later)
    assert read_only_inside(work) == ["a/", "a/.git"]
    listed: list[str] = []
    whole = module._list

    def noted(folder: str, stamp: Any) -> Any:
        listed.append(folder)
        return whole(folder, stamp)

    monkeypatch.setattr(module, "_list", noted)
    assert read_only_inside(work) == ["a/", "a/.git"]
    assert listed == []
    (work / "a" / "toolkeep.lock").touch()
    assert read_only_inside(work) == ["a/", "a/.git", "a/toolkeep.lock"]
    assert listed == [f"{work}/a"]


def test_a_folder_that_changed_just_now_is_listed_again(work: Path) -> None:
    """Its next change may carry the same time."""
    assert read_only_inside(work) == []
    (work / ".git").mkdir()
    assert read_only_inside(work) == [".git"]


def test_folders_nested_without_end_refuse_the_grant_in_words(work: Path) -> None:
    top = os.open(work, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("deep", dir_fd=top)
        below = os.open("deep", os.O_RDONLY, dir_fd=top)
        os.close(top)
        top = below
    with pytest.raises(ValueError, match="nested too deep"):
        read_only_inside(work)
    for _ in range(1500):  # too deep for shutil.rmtree, which pytest calls
        above = os.open("..", os.O_RDONLY, dir_fd=top)
        os.rmdir("deep", dir_fd=above)
        os.close(top)
        top = above
    os.close(top)


MOUNTED_TWICE = """
set -e
mkdir -p "$1/app/package" "$1/real" "$1/part" "$1/plain" "$1/second"
mount --bind "$1/plain" "$1/second"
mount --bind "$1/app" "$1/real"
mount --bind "$1/app/package" "$1/part"
exec "$2" - "$1" <<'PROGRAM'
import sys
from toolkeep.execution.read_only_paths import read_only_inside
from toolkeep.sandbox.import_guard import is_writable
from toolkeep.sandbox.trusted_paths import TrustedPath, TrustedPaths

top = sys.argv[1]
trusted = TrustedPaths(code=lambda: [TrustedPath(f"{top}/app/package", "the code of a tool")])
for granted in ("app", "real", "part"):
    try:
        print(granted, len(list(read_only_inside(f"{top}/{granted}", trusted, "agent", is_deep=True))))
    except ValueError as error:
        print(granted, error)
print(len(list(read_only_inside(f"{top}/second", trusted, "agent", is_deep=True))))
print(is_writable(f"{top}/plain/left.py"), is_writable(f"{top}/other.py"))
PROGRAM
"""


@pytest.mark.spec("SBX-6")
def test_a_folder_that_is_mounted_twice_is_not_granted_by_its_other_name(work: Path) -> None:
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", MOUNTED_TWICE, "sh", str(work), sys.executable],
        capture_output=True,
        text=True,
        check=True,
    )
    refused = "its folder is mounted a second time, where the code of a tool is; grant a folder that is mounted once"
    assert done.stdout.splitlines() == [
        "app 1",
        f"real {refused}",
        f"part {refused}",
        "0",
        "True False",
    ]
