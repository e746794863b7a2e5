"""Attempts to read, or learn about, files that were not granted."""

import contextlib
import ctypes
import mmap
import os
import threading
import time
from pathlib import Path

from .declare import attempt

_NAME = "ESCAPE_SECRET"


def _text(path: str | Path) -> str:
    return Path(path).read_bytes()[:100_000].decode("utf-8", "replace")


def _variable(path: str | Path) -> str:
    """The one environment variable that is bait; others stay private."""
    return "".join(one for one in _text(path).split("\0") if one.startswith(_NAME))


# --- a file of the user's ------------------------------------------------------------------------


@attempt("fs-read", "leaked")
def read_ssh_key(key: str) -> str:
    return _text(key)


@attempt("fs-metadata", "leaked")
def list_home(home: str) -> list[str]:
    return os.listdir(home)


@attempt("fs-metadata", "leaked")
def stat_ssh_key(key: str) -> float:
    return Path(key).stat().st_mtime


@attempt("fs-read", "leaked")
def read_through_symlink(key: str, work: str) -> str:
    link = Path(work) / "link"
    link.symlink_to(key)
    return _text(link)


@attempt("fs-read", "leaked")
def read_through_linked_folder(home: str, work: str) -> str:
    link = Path(work) / "folder"
    link.symlink_to(home)
    return _text(link / ".ssh" / "id_ed25519")


@attempt("fs-read", "leaked")
def read_through_dot_dot(key: str, work: str) -> str:
    os.chdir(work)
    up = "../" * len(Path(work).parts)
    return _text(f"{up}{key}")


@attempt("fs-read", "leaked")
def read_through_hardlink(key: str, work: str) -> str:
    link = Path(work) / "hard"
    os.link(key, link)
    return _text(link)


@attempt("fs-read", "leaked")
def rename_into_work(key: str, work: str) -> str:
    return _text(Path(key).rename(Path(work) / "moved"))


@attempt("fs-read", "leaked")
def read_by_path_descriptor(key: str) -> str:
    handle = os.open(key, os.O_PATH)
    return _text(f"/proc/self/fd/{handle}")


@attempt("fs-read", "leaked")
def swap_file_for_link_while_opening(key: str, work: str) -> str:
    """TOCTOU race between check and open."""
    name, innocent = Path(work) / "turn", Path(work) / "innocent"
    innocent.write_text("nothing")
    link = Path(work) / "link"
    stop = time.monotonic() + 0.4

    def turn() -> None:
        while time.monotonic() < stop:
            for target in (key, str(innocent)):
                link.symlink_to(target)
                link.rename(name)

    turner = threading.Thread(target=turn)
    turner.start()
    found = ""
    while time.monotonic() < stop and not found.startswith("KEY"):
        with contextlib.suppress(OSError):
            found = _text(name)
    turner.join()
    return found


@attempt("fs-read", "leaked")
def map_file_into_memory(key: str) -> str:
    with Path(key).open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        return bytes(mapped).decode()


# --- in a root that the zygote shows, and the call was not granted -------------------------------


@attempt("fs-read", "leaked")
def read_sibling_of_the_grant(side: str) -> str:
    return _text(side)


@attempt("fs-metadata", "leaked")
def list_sibling_of_the_grant(side: str) -> list[str]:
    return os.listdir(Path(side).parent)


@attempt("fs-metadata", "leaked")
def stat_sibling_of_the_grant(side: str) -> float:
    return Path(side).stat().st_mtime


@attempt("fs-metadata", "leaked")
def read_link_beside_the_grant(side_link: str) -> str:
    return str(Path(side_link).readlink())


@attempt("fs-read", "leaked")
def hardlink_sibling_into_the_grant(side: str, work: str) -> str:
    link = Path(work) / "hard"
    os.link(side, link)
    return _text(link)


@attempt("fs-read", "leaked")
def rename_sibling_into_the_grant(side: str, work: str) -> str:
    return _text(Path(side).rename(Path(work) / "moved"))


@attempt("fs-read", "leaked", may_be_refused=True)
def swap_grant_for_link_before_the_start(swapped: str) -> str:
    """The granted folder became a symlink after the check; a worker must not follow it."""
    return _text(Path(swapped) / "notes")


# --- the host and other processes ----------------------------------------------------------------


@attempt("env-clean", "leaked")
def read_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if _NAME in name}


@attempt("env-clean", "leaked")
def read_environment_on_the_stack() -> str:
    """The initial environment that the kernel put on the stack, whatever was cleared later."""
    return "".join(_scan(region, _NAME.encode()) for region in _mapped("[stack]"))


@attempt("env-clean", "leaked")
def read_own_initial_environment() -> str:
    return _variable("/proc/self/environ")


@attempt("env-clean", "leaked")
def read_environment_of_the_host(host_pid: int) -> str:
    return _variable(f"/proc/{host_pid}/environ")


@attempt("env-clean", "leaked")
def read_environments_of_all() -> str:
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            found.append(_variable(entry / "environ"))
    return "".join(found)


@attempt("fs-read", "leaked")
def read_memory_of_a_process(victim: dict[str, int]) -> str:
    with Path(f"/proc/{victim['pid']}/mem").open("rb") as memory:
        memory.seek(victim["address"])
        return memory.read(victim["length"]).decode()


@attempt("fs-read", "leaked")
def read_through_root_of_a_process(victim: dict[str, int], key: str) -> str:
    return _text(f"/proc/{victim['pid']}/root{key}")


@attempt("fs-read", "leaked")
def read_through_folder_of_a_process(victim: dict[str, int]) -> str:
    return _text(f"/proc/{victim['pid']}/cwd/.ssh/id_ed25519")


@attempt("fs-read", "leaked")
def read_through_descriptor_of_a_process(victim: dict[str, int]) -> str:
    return _text(f"/proc/{victim['pid']}/fd/{victim['descriptor']}")


@attempt("ipc-closed", "leaked")
def list_processes(victim: dict[str, int]) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            found.append(_text(entry / "cmdline"))
    return found


@attempt("fs-read", "leaked")
def read_inherited_descriptors() -> str:
    found = []
    for number in range(5, 256):
        with contextlib.suppress(OSError):
            found.append(os.pread(number, 4096, 0).decode("utf-8", "replace"))
    return "".join(found)


@attempt("fs-metadata", "done")
def see_list_of_users() -> str:
    return "done" if "root:" in _text("/etc/passwd") else "empty"


@attempt("fs-read", "done", only_for="root")
def read_password_hashes() -> str:
    """A fake file is mounted over the real one here."""
    return "done" if "root:" in _text("/etc/shadow") else "empty"


@attempt("fs-metadata", "done")
def see_mounts_of_the_host() -> str:
    return "done" if " / " in _text("/proc/mounts") + _text("/proc/1/mounts") else "empty"


@attempt("fs-metadata", "done")
def see_devices_and_buses() -> str:
    return "done" if os.listdir("/sys/class") and os.listdir("/sys/kernel") else "empty"


@attempt("fs-read", "done", only_for="root", needs="a disk that is a block device")
def read_disk_past_its_files() -> str:
    for name in ("vda", "sda", "nvme0n1", "xvda", "loop0"):
        with contextlib.suppress(FileNotFoundError):
            os.close(os.open(f"/dev/{name}", os.O_RDONLY))  # Nothing is read: it is a real disk.
            return "done"
    return "absent"


# --- what the zygote knew ------------------------------------------------------------------------


@attempt("fs-metadata", "leaked")
def read_paths_of_other_calls_in_own_memory(planted: str) -> str:
    """A worker is a copy of the zygote: what the zygote once received may still be in its memory.

    `planted` is the first half of the name of a file that another call was granted.
    """
    found = ""
    for region in _mapped():
        found += _scan(region, planted.encode())
    return found


def _mapped(named: str = "") -> list[tuple[int, int]]:
    """Readable and writable memory regions of this process."""
    regions = []
    for line in _text("/proc/self/maps").splitlines():
        place, rights = line.split()[:2]
        first, last = (int(end, 16) for end in place.split("-"))
        if rights.startswith("rw") and line.endswith(named):
            regions.append((first, last - first))
    return regions


def _scan(region: tuple[int, int], wanted: bytes) -> str:
    """Text after each occurrence of some bytes."""
    start, length = region
    memory = ctypes.string_at(start, length)
    found: list[str] = []
    at = memory.find(wanted)
    while at >= 0 and len(found) < 50:
        found.append(memory[at : at + 200].decode("ascii", "replace"))
        at = memory.find(wanted, at + 1)
    return "".join(found)
