"""A command's first word is the file that would run, and a grant of a program is of that file."""

import os
from pathlib import Path

import pytest

from toolkeep.policy.program_grants import Program, resolve_program
from toolkeep.policy.resolved_path import PathRefused, ResolvedPath

pytestmark = pytest.mark.spec("POL-1")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Folders first/ and second/, each with a program `tool`; only the second has `other`."""
    folder = Path(os.path.realpath(tmp_path)) / "base"
    for name in ("first/tool", "second/tool", "second/other"):
        program(folder / name)
    return folder


def program(path: Path, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def search(base: Path) -> str:
    return f"{base}/first:{base}/second"


def found(argv0: str, base: Path, path: str | None = None) -> str:
    with resolve_program(argv0, str(base), search(base) if path is None else path) as place:
        return os.path.relpath(place.path, base)


def refused(argv0: str, base: Path, path: str | None = None) -> str:
    with pytest.raises(PathRefused) as caught:
        found(argv0, base, path)
    return caught.value.reason


# --- finding -------------------------------------------------------------------------------------


def test_a_name_is_the_first_program_on_the_path(base: Path) -> None:
    assert found("tool", base) == "first/tool"
    assert found("other", base) == "second/other"


def test_a_name_with_a_slash_is_a_path(base: Path) -> None:
    assert found("./second/tool", base) == "second/tool"
    assert found("second/tool", base) == "second/tool"
    assert found(f"{base}/second/other", base, "") == "second/other"


def test_a_link_is_the_program_that_it_leads_to(base: Path) -> None:
    (base / "first" / "other").symlink_to("../second/tool")
    assert found("other", base) == "second/tool"
    assert found("first/other", base) == "second/tool"


@pytest.mark.parametrize("kind", ["folder", "unexecutable", "dangling", "fifo"])
def test_what_cannot_run_is_passed_over_on_the_path_and_refused_by_path(base: Path, kind: str) -> None:
    (base / "first" / "tool").unlink()
    if kind == "folder":
        (base / "first" / "tool").mkdir()
    elif kind == "unexecutable":
        program(base / "first" / "tool", 0o644)
    elif kind == "dangling":
        (base / "first" / "tool").symlink_to("nowhere")
    else:
        os.mkfifo(base / "first" / "tool", 0o755)
    assert found("tool", base) == "second/tool"
    refused("first/tool", base)


@pytest.mark.parametrize("path", ["", ":", ":::", ".:first:second", "first", "~/bin", "/nowhere"])
def test_empty_and_relative_folders_of_the_path_do_not_count(
    base: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    program(base / "tool")
    monkeypatch.chdir(base)
    assert refused("tool", base, path) == "the program 'tool' was not found"


def test_a_relative_folder_of_the_path_does_not_count_from_the_root_either(base: Path) -> None:
    refused("tool", base, str(base / "first").lstrip("/"))


@pytest.mark.parametrize("argv0", ["", ".", "..", "missing", "tool\0", "tool\n"])
def test_a_name_that_is_no_program_is_refused(base: Path, argv0: str) -> None:
    assert "was not found" in refused(argv0, base)


@pytest.mark.parametrize(
    "argv0", ["/proc/self/exe", "/proc/self/root/bin/sh", "first/", "./missing", "first/tool/x"]
)
def test_a_path_that_is_no_program_is_refused(base: Path, argv0: str) -> None:
    refused(argv0, base)


def test_the_place_found_is_held_and_can_be_checked_again(base: Path) -> None:
    with resolve_program("tool", str(base), search(base)) as place:
        place.check_unchanged()
        program(base / "other").rename(base / "first" / "tool")
        with pytest.raises(PathRefused) as caught:
            place.check_unchanged()
        assert caught.value.is_changed


def test_refusals_leave_no_descriptor_open(base: Path) -> None:
    program(base / "first" / "text", 0o644)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(1000):
        refused(("text", "first/text", "first", ".", "./first")[number % 5], base)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


# --- grants --------------------------------------------------------------------------------------


def at(argv0: str, base: Path) -> ResolvedPath:
    return resolve_program(argv0, str(base), search(base))


def grants(scope: str, argv0: str, base: Path) -> bool:
    with at(argv0, base) as place:
        return Program(scope, str(base), search(base)).contains(place)


@pytest.mark.parametrize("scope", ["tool", "first/tool", "./first/../first/tool"])
@pytest.mark.parametrize("argv0", ["tool", "first/tool", "./first/tool"])
def test_a_grant_is_of_the_file_however_it_is_named(base: Path, scope: str, argv0: str) -> None:
    assert grants(scope, argv0, base)


@pytest.mark.parametrize("argv0", ["second/tool", "other"])
def test_a_program_of_the_same_name_elsewhere_is_another(base: Path, argv0: str) -> None:
    assert not grants("tool", argv0, base)


@pytest.mark.parametrize("scope", ["", "*", "missing", "first", ".", "/", "\0"])
def test_a_scope_that_names_no_program_grants_none(base: Path, scope: str) -> None:
    assert not grants(scope, "tool", base)


def test_a_star_is_no_program_even_where_one_is_called_so(base: Path) -> None:
    program(base / "first" / "*")
    assert not grants("*", "*", base)


def test_a_hard_link_to_the_program_is_another_program(base: Path) -> None:
    (base / "first" / "alias").hardlink_to(base / "first" / "tool")
    assert not grants("tool", "alias", base)


def test_another_file_at_the_same_path_is_another_program(base: Path) -> None:
    grant = Program("tool", str(base), search(base))
    with at("tool", base) as place:
        assert grant.contains(place)
        program(base / "other").rename(base / "first" / "tool")
        assert not grant.contains(place)


def test_a_program_that_comes_first_by_now_is_the_one_that_is_granted(base: Path) -> None:
    grant = Program("other", str(base), search(base))
    with at("other", base) as place:
        assert grant.contains(place)
        program(base / "first" / "other")
        assert not grant.contains(place)
