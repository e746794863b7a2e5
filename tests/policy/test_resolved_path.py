"""A path is resolved by the kernel, held by a descriptor, and must still be the same when it is used.

Every test runs twice: as this kernel opens paths, and as where it refuses `openat2`.
"""

import copy
import errno
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from toolkeep.policy import resolved_path
from toolkeep.policy.resolved_path import PathRefused, ResolvedPath, resolve

pytestmark = pytest.mark.spec("POL-1")

HIGH_SURROGATE = "\ud800"


def not_there(path: bytes) -> int:
    raise OSError(errno.ENOSYS, "Function not implemented")


def not_allowed(path: bytes) -> int:
    raise OSError(errno.EPERM, "Operation not permitted")


@pytest.fixture(params=["openat2", "walk"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "walk":
        monkeypatch.setattr(resolved_path, "_openat2", not_there)
    else:
        needs_openat2()
    return str(request.param)


def needs_openat2() -> None:
    try:
        os.close(resolved_path._openat2(b"/"))
    except OSError as error:
        if os.environ.get("CI"):
            pytest.fail(f"the kernel refuses openat2: {error.strerror}")
        pytest.skip(f"the kernel refuses openat2: {error.strerror}")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """docs/a.txt, and secret.txt beside the folder."""
    folder = Path(os.path.realpath(tmp_path)) / "base"
    (folder / "docs").mkdir(parents=True)
    (folder / "docs" / "a.txt").write_text("a")
    (folder.parent / "secret.txt").write_text("secret")
    return folder


def existing(text: str, base: Path) -> ResolvedPath:
    return resolve(text, str(base), may_be_missing=False)


def writable(text: str, base: Path) -> ResolvedPath:
    return resolve(text, str(base), may_be_missing=True)


def refused(text: str, base: Path, *, may_be_missing: bool = False) -> str:
    with pytest.raises(PathRefused) as caught:
        resolve(text, str(base), may_be_missing=may_be_missing)
    assert not caught.value.is_changed
    return caught.value.reason


def changed(place: ResolvedPath) -> None:
    with pytest.raises(PathRefused) as caught:
        place.check_unchanged()
    assert caught.value.is_changed
    assert caught.value.reason == f"'{place.text}' has changed since it was checked"


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


# --- where a path leads --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["docs/a.txt", "./docs/a.txt", "docs//a.txt", "docs/../docs/a.txt", "../base/docs/./a.txt"]
)
def test_every_way_of_writing_a_path_leads_to_one_place(base: Path, text: str) -> None:
    file = base / "docs" / "a.txt"
    with existing(text, base) as place:
        assert (place.text, place.path, place.missing) == (text, str(file), "")
        assert (place.device, place.inode) == (file.stat().st_dev, file.stat().st_ino)
        assert (place.is_file, place.is_folder, place.is_special) == (True, False, False)


def test_an_absolute_path_does_not_start_from_the_base(base: Path) -> None:
    with existing(str(base.parent / "secret.txt"), base) as place:
        assert place.path == str(base.parent / "secret.txt")


@pytest.mark.parametrize(("text", "path"), [("/", "/"), ("/..", "/"), ("/../..//", "/")])
def test_nothing_lies_above_the_root(base: Path, text: str, path: str) -> None:
    with existing(text, base) as place:
        assert (place.path, place.is_folder) == (path, True)


def test_the_root_as_base_is_no_different(base: Path) -> None:
    with existing(str(base)[1:], Path("/")) as place:
        assert place.path == str(base)


def test_a_link_out_of_the_folder_is_judged_by_where_it_leads(base: Path) -> None:
    (base / "docs" / "innocent.txt").symlink_to("../../secret.txt")
    with existing("docs/innocent.txt", base) as place:
        assert place.path == str(base.parent / "secret.txt")


def test_parent_folders_behind_a_link_are_those_of_its_target(base: Path) -> None:
    (base.parent / "elsewhere" / "deep").mkdir(parents=True)
    (base.parent / "elsewhere" / "f").write_text("f")
    (base / "docs" / "link").symlink_to(base.parent / "elsewhere" / "deep")
    with existing("docs/link/../f", base) as place:
        assert place.path == str(base.parent / "elsewhere" / "f")


def test_links_to_links_and_absolute_ones_are_followed_to_the_end(base: Path) -> None:
    (base / "one").symlink_to("two")
    (base / "two").symlink_to(base / "docs")
    with existing("one/a.txt", base) as place:
        assert place.path == str(base / "docs" / "a.txt")


def test_a_path_with_forty_links_is_followed_and_one_with_more_is_not(base: Path) -> None:
    (base / "0").symlink_to("docs")
    for number in range(1, 41):
        (base / str(number)).symlink_to(str(number - 1))
    with existing("39", base) as place:
        assert place.path == str(base / "docs")
    assert "symlink loop" in refused("40", base)


def test_links_in_a_circle_are_refused(base: Path) -> None:
    (base / "a").symlink_to("b")
    (base / "b").symlink_to("a")
    for may_be_missing in (False, True):
        assert "symlink loop" in refused("a/x", base, may_be_missing=may_be_missing)


def test_a_tilde_is_a_plain_name(base: Path) -> None:
    (base / "~").mkdir()
    (base / "~" / "f").write_text("f")
    with existing("~/f", base) as place:
        assert place.path == str(base / "~" / "f")


def test_a_name_that_is_not_utf_8_is_a_name_like_any_other(base: Path) -> None:
    name = os.fsdecode(b"\xff\xfe")
    (base / name).write_text("odd")
    with existing(name, base) as place:
        assert place.path == f"{base}/{name}"


def test_the_descriptor_reads_nothing_and_no_child_inherits_it(base: Path) -> None:
    with existing("docs/a.txt", base) as place:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.read(place.descriptor, 1)
        assert not os.get_inheritable(place.descriptor)


@pytest.mark.parametrize("kind", ["fifo", "socket", "device"])
def test_special_files_resolve_and_say_so(base: Path, kind: str) -> None:
    path = base / "special"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server, pytest.MonkeyPatch.context() as patch:
            patch.chdir(base)
            server.bind("special")
    else:
        path = Path("/dev/null")
    with existing(str(path), base) as place:
        assert (place.is_special, place.is_file, place.is_folder) == (True, False, False)


# --- what is refused -----------------------------------------------------------------------------

KERNELS_OWN = [
    "/proc/self/root/etc/passwd",
    "/proc/self/root",
    "/proc/self/cwd",
    "/proc/self/fd/0",
    "/proc/self/exe",
    "/proc/thread-self/root",
    "/proc/1/cwd",
    "/dev/fd/0",
    "/dev/fd",
    "/proc",
    "/proc/",
    "/proc/self/environ",
    "/proc/self/mem",
    "/proc/sys/kernel/core_pattern",
    "/proc/self/task/../environ",
]


@pytest.mark.parametrize("may_be_missing", [False, True])
@pytest.mark.parametrize("text", KERNELS_OWN)
def test_the_kernels_own_links_and_files_are_refused(base: Path, text: str, may_be_missing: bool) -> None:
    refused(text, base, may_be_missing=may_be_missing)


@pytest.mark.parametrize("target", ["/proc/self/root", "/proc/self", "/proc"])
def test_a_link_that_leads_into_the_kernels_own_files_is_refused(base: Path, target: str) -> None:
    (base / "link").symlink_to(target)
    refused("link", base)
    refused("link/status", base)
    refused("link/new", base, may_be_missing=True)


def test_a_link_of_the_kernel_is_refused_though_it_leads_back_to_the_folder(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(base)
    assert "kernel link" in refused("/proc/self/cwd/docs/a.txt", base)


MOUNTED = """
import subprocess, sys
from toolkeep.policy.resolved_path import PathRefused, resolve

shown, at, text = sys.argv[1:]
subprocess.run(["mount", "--rbind", shown, at], check=True)
try:
    print(resolve(text, at, may_be_missing=True).path)
except PathRefused as refused:
    print(refused.reason)
"""


def mounted(shown: str, at: str, text: str) -> str:
    """Where a path leads, or why it is refused, in a process that has a folder mounted elsewhere."""
    unshare = ["unshare", "--map-root-user", "--mount"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        if os.environ.get("CI"):
            pytest.fail("this machine gives no mount namespace")
        pytest.skip("this machine gives no mount namespace")
    command = [*unshare, sys.executable, "-c", MOUNTED, shown, at, text]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_mount_elsewhere_is_judged_by_where_it_is_mounted(base: Path) -> None:
    (base / "mounted").mkdir()
    assert mounted(str(base / "docs"), str(base / "mounted"), "a.txt") == str(base / "mounted" / "a.txt")


@pytest.mark.parametrize("text", ["version", "sys/kernel/core_pattern", "new"])
def test_the_kernels_own_files_are_refused_where_they_are_mounted_elsewhere(base: Path, text: str) -> None:
    assert mounted("/proc", str(base / "docs"), text) == "the kernel's own files may not be touched"


@pytest.mark.parametrize("text", ["a.txt", "new"])
def test_what_is_mounted_among_the_kernels_own_files_is_refused(base: Path, text: str) -> None:
    assert mounted(str(base / "docs"), "/proc/fs", text) == "the kernel's own files may not be touched"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "an empty path names nothing"),
        ("docs/a.txt\0.png", "holds a NUL character"),
        (HIGH_SURROGATE, "holds a character that no path can hold"),
        ("a" * 300, "is longer than a path can be"),
        ("a/" * 2100, "is longer than a path can be"),
        ("/" * 5000, "is longer than a path can be"),
        ("docs/a.txt/", "has a parent that is not a folder"),
        ("docs/a.txt/.", "has a parent that is not a folder"),
        ("docs/a.txt/..", "has a parent that is not a folder"),
        ("docs/a.txt/b", "has a parent that is not a folder"),
    ],
    ids=["empty", "nul", "surrogate", "name", "path", "slashes", "slash", "dot", "parent", "below"],
)
@pytest.mark.parametrize("may_be_missing", [False, True])
def test_what_no_path_can_be_is_refused(base: Path, text: str, reason: str, may_be_missing: bool) -> None:
    assert reason in refused(text, base, may_be_missing=may_be_missing)


def test_the_length_counts_in_bytes_and_from_the_root(base: Path) -> None:
    room = 4095 - len(os.fsencode(base)) - 1
    fitting = ("ü/" * (room // 3)).rstrip("/")
    assert "does not exist" in refused(fitting, base)
    assert "is longer than a path can be" in refused(fitting + "/üü", base)


def test_a_base_that_is_not_absolute_is_our_own_mistake() -> None:
    with pytest.raises(ValueError, match="absolute folder"):
        resolve("a", "docs", may_be_missing=True)


def test_a_reason_shows_the_path_cut_and_with_nothing_that_could_deceive(base: Path) -> None:
    reason = refused("docs/\u202etxt\n" + "x" * 100, base)
    assert "\\u202e" in reason
    assert "\n" not in reason
    assert len(reason) < 120


def test_a_missing_path_is_refused_where_it_has_to_exist(base: Path) -> None:
    assert refused("docs/new.txt", base) == "'docs/new.txt' does not exist"


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_is_deleted_while_it_is_resolved_is_refused(
    base: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path = base / "docs" / "a.txt" if kind == "file" else base / "empty"
    if kind == "folder":
        path.mkdir()
    real_open = resolved_path._open

    def open_and_delete(name: bytes) -> int:
        descriptor = real_open(name)
        path.unlink() if kind == "file" else path.rmdir()
        return descriptor

    monkeypatch.setattr(resolved_path, "_open", open_and_delete)
    assert "does not exist" in refused(str(path), base)


def test_a_deleted_file_is_not_taken_for_its_hard_link_of_a_fitting_name(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = base / "docs" / "a.txt"
    real_open = resolved_path._open

    def open_and_rename(name: bytes) -> int:
        descriptor = real_open(name)
        (base / "docs" / "a.txt (deleted)").hardlink_to(path)
        path.unlink()
        return descriptor

    monkeypatch.setattr(resolved_path, "_open", open_and_rename)
    assert "does not exist" in refused("docs/a.txt", base)


def test_a_file_whose_path_leads_to_another_one_is_refused(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As below a mount that something else is mounted over."""
    real_readlink = os.readlink

    def misplaced(path: str) -> str:
        return real_readlink(path).removesuffix("/a.txt")

    monkeypatch.setattr(os, "readlink", misplaced)
    assert "cannot be resolved" in refused("docs/a.txt", base)


# --- what does not exist yet ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("docs/new.txt", "new.txt"),
        ("docs/new/deep/f", "new/deep/f"),
        ("docs/new//deep/./f/", "new/deep/f"),
        ("docs/../docs/new.txt", "new.txt"),
        ("docs/" + "n/" * 500 + "f", "n/" * 500 + "f"),
    ],
    ids=["file", "folders", "slashes", "parent", "deep"],
)
def test_the_end_of_a_path_may_be_missing(base: Path, text: str, missing: str) -> None:
    docs = base / "docs"
    with writable(text, base) as place:
        assert (place.path, place.missing) == (f"{docs}/{missing}", missing)
        assert (place.device, place.inode) == (docs.stat().st_dev, docs.stat().st_ino)
        assert (place.is_folder, place.is_file, place.is_special) == (False, False, False)


def test_a_missing_name_in_the_root_has_one_slash(base: Path) -> None:
    with writable("/toolkeep-test-missing/f", base) as place:
        assert place.path == "/toolkeep-test-missing/f"


def test_an_existing_path_misses_nothing(base: Path) -> None:
    with writable("docs/a.txt", base) as place:
        assert (place.path, place.missing, place.is_file) == (str(base / "docs" / "a.txt"), "", True)


def test_a_missing_file_behind_a_link_lies_where_the_link_leads(base: Path) -> None:
    (base / "docs" / "out").symlink_to(base.parent)
    with writable("docs/out/new.txt", base) as place:
        assert place.path == str(base.parent / "new.txt")


@pytest.mark.parametrize("text", ["docs/new/../../../secret.txt", "docs/new/..", "new/../x/y"])
def test_parent_folders_of_what_does_not_exist_are_refused(base: Path, text: str) -> None:
    assert "cannot contain '..'" in refused(text, base, may_be_missing=True)


@pytest.mark.parametrize(
    "text", ["docs/dangling", "docs/dangling/", "docs/dangling/x", "docs/dangling/./x/y"]
)
@pytest.mark.parametrize("target", ["../../made-by-attack", "/nowhere/at/all", "second"])
def test_a_link_to_nowhere_is_refused_wherever_it_stands(base: Path, text: str, target: str) -> None:
    (base / "docs" / "dangling").symlink_to(target)
    (base / "docs" / "second").symlink_to("../../made-by-attack")
    refused(text, base)
    assert refused(text, base, may_be_missing=True) == "'dangling' is a dangling symlink"


# --- the same as before --------------------------------------------------------------------------


def test_what_nobody_touched_is_unchanged(base: Path) -> None:
    for place in (existing("docs/a.txt", base), writable("docs/new/f", base), existing("docs", base)):
        with place:
            place.check_unchanged()


def test_other_content_is_no_other_file(base: Path) -> None:
    with existing("docs/a.txt", base) as place:
        (base / "docs" / "a.txt").write_text("something else")
        place.check_unchanged()


def swap_for_link(base: Path) -> None:
    (base / "docs" / "a.txt").unlink()
    (base / "docs" / "a.txt").symlink_to(base.parent / "secret.txt")


def swap_folder_for_link(base: Path) -> None:
    (base / "docs").rename(base / "old")
    (base / "docs").symlink_to(base.parent)


def swap_folder_for_link_to_itself(base: Path) -> None:
    (base / "docs").rename(base / "old")
    (base / "docs").symlink_to("old")


def swap_base(base: Path) -> None:
    base.rename(base.parent / "old")
    (base / "docs").mkdir(parents=True)
    (base / "docs" / "a.txt").write_text("a")


def replace_by_rename(base: Path) -> None:
    (base / "other").write_text("a")
    (base / "other").rename(base / "docs" / "a.txt")


def replace_by_link_to_same_file(base: Path) -> None:
    (base / "docs" / "same").hardlink_to(base / "docs" / "a.txt")
    (base / "docs" / "a.txt").unlink()
    (base / "docs" / "a.txt").symlink_to("same")


def delete(base: Path) -> None:
    (base / "docs" / "a.txt").unlink()


def replace_by_folder(base: Path) -> None:
    (base / "docs" / "a.txt").unlink()
    (base / "docs" / "a.txt").mkdir()


ATTACKS = [
    swap_for_link,
    swap_folder_for_link,
    swap_folder_for_link_to_itself,
    swap_base,
    replace_by_rename,
    replace_by_link_to_same_file,
    delete,
    replace_by_folder,
]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
@pytest.mark.parametrize("may_be_missing", [False, True])
def test_what_was_swapped_has_changed(
    base: Path, attack: Callable[[Path], None], may_be_missing: bool
) -> None:
    with resolve("docs/a.txt", str(base), may_be_missing=may_be_missing) as place:
        attack(base)
        changed(place)


def test_a_link_that_is_turned_elsewhere_has_changed(base: Path) -> None:
    (base / "link").symlink_to("docs/a.txt")
    with existing("link", base) as place:
        (base / "link").unlink()
        (base / "link").symlink_to(base.parent / "secret.txt")
        changed(place)


def test_a_number_of_an_inode_is_not_reused_while_the_place_is_held(base: Path) -> None:
    path = base / "docs" / "a.txt"
    with existing("docs/a.txt", base) as place:
        for _ in range(100):
            path.unlink()
            path.write_text("a")
            assert path.stat().st_ino != place.inode
        changed(place)


def test_a_place_that_was_let_go_vouches_for_nothing(base: Path) -> None:
    place = existing("docs/a.txt", base)
    place.close()
    changed(place)


@pytest.mark.parametrize("made", ["file", "folder", "link", "dangling", "part"])
def test_a_missing_file_that_exists_by_now_has_changed(base: Path, made: str) -> None:
    text = "docs/new/f" if made == "part" else "docs/new"
    path = base / "docs" / "new"
    with writable(text, base) as place:
        if made == "file":
            path.write_text("")
        elif made in ("folder", "part"):
            path.mkdir()
        else:
            path.symlink_to(base.parent / ("secret.txt" if made == "link" else "nowhere"))
        changed(place)


def test_a_missing_file_in_a_folder_of_the_same_name_has_changed(base: Path) -> None:
    with writable("docs/new", base) as place:
        (base / "docs").rename(base / "old")
        (base / "docs").mkdir()
        changed(place)


# --- descriptors ---------------------------------------------------------------------------------


def test_a_thousand_refusals_leave_no_descriptor_open(base: Path) -> None:
    (base / "dangling").symlink_to("nowhere")
    (base / "loop").symlink_to("loop")
    bad = ["", "a\0", "dangling", "dangling/x", "loop", "docs/a.txt/x", "new/../x", "x" * 300, *KERNELS_OWN]
    before = open_descriptors()
    for number in range(1000):
        refused(bad[number % len(bad)], base, may_be_missing=bool(number // len(bad) % 2))
    assert open_descriptors() == before


def test_checking_again_leaves_no_descriptor_open(base: Path) -> None:
    with existing("docs/a.txt", base) as place:
        before = open_descriptors()
        for _ in range(100):
            place.check_unchanged()
        replace_by_rename(base)
        for _ in range(100):
            changed(place)
        assert open_descriptors() == before


def test_closing_twice_does_not_close_what_others_opened_since(base: Path) -> None:
    place = existing("docs/a.txt", base)
    number = place.descriptor
    place.close()
    held = os.open(base / "docs" / "a.txt", os.O_RDONLY)
    os.dup2(held, number)
    place.close()
    assert os.read(number, 1) == b"a"
    for descriptor in {held, number}:
        os.close(descriptor)


def test_a_place_that_is_dropped_lets_go_of_its_descriptor(base: Path) -> None:
    before = open_descriptors()
    place = existing("docs/a.txt", base)
    assert open_descriptors() == before + 1
    del place
    assert open_descriptors() == before


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_place_cannot_be_copied(base: Path, copied: Callable[[ResolvedPath], object]) -> None:
    with existing("docs/a.txt", base) as place, pytest.raises(TypeError, match="cannot be copied"):
        copied(place)


# --- a kernel that lacks or forbids the call -----------------------------------------------------


@pytest.mark.parametrize("wrapper", [not_there, not_allowed])
def test_where_openat2_is_missing_or_forbidden_the_path_is_walked(
    base: Path, monkeypatch: pytest.MonkeyPatch, wrapper: Callable[[bytes], int]
) -> None:
    monkeypatch.setattr(resolved_path, "_openat2", wrapper)
    with existing("docs/a.txt", base) as place:
        assert place.path == str(base / "docs" / "a.txt")
    refused("/proc/self/root/etc", base)


def test_the_walk_does_not_even_pass_through_the_kernels_own_files(base: Path, way: str) -> None:
    if way == "walk":
        refused("/proc/../etc", base)
    else:
        with existing("/proc/../etc", base) as place:
            assert place.path == "/etc"


def test_a_system_without_descriptors_of_paths_refuses_every_path(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolved_path, "_HAS_PATH_DESCRIPTORS", False)
    assert "none can be checked" in refused("docs/a.txt", base)
