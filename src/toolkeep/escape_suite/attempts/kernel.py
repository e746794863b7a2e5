"""Attempts at privilege escalation, and on kernel attack surface.

The host cannot observe most of these, so the attempt reports itself whether it succeeded.
"""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import pty
import struct
from pathlib import Path

from . import system
from .declare import attempt
from .system import AT_FDCWD, call, libc, raw

DONE = "done"
_ROOT_MOUNT = 0xFFFF_FFFF_FFFF_FFFF
_STATX_MNT_ID_UNIQUE = 0x4000
_MNT_ID_AT = 144
_MNT_ROOT = 0x8
_NO_DUMP = 0x80


# --- mounts and roots ----------------------------------------------------------------------------


@attempt("kernel-surface", "done")
def mount_a_file_system(empty: str) -> str:
    system.become_root_of_a_namespace(system.CLONE_NEWNS)
    call("mount", b"tmpfs", os.fsencode(empty), b"tmpfs", 0, None)
    return DONE


@attempt("kernel-surface", "done")
def mount_without_a_namespace_first(empty: str) -> str:
    """In the current mount namespace; the unconfined control takes a new one."""
    with contextlib.suppress(OSError):
        system.become_root_of_a_namespace(system.CLONE_NEWNS)
    call("mount", b"/", os.fsencode(empty), None, 4096 | 16384, None)
    return DONE


@attempt("kernel-surface", "done")
def make_the_root_writable() -> str:
    with contextlib.suppress(OSError):
        system.become_root_of_a_namespace(system.CLONE_NEWNS)
    wanted = struct.pack("=QQQQ", 0x4, 0, 0, 0)  # MOUNT_ATTR_NODEV only: adding it is harmless to the control
    raw("mount_setattr", AT_FDCWD, b"/", 0, wanted, len(wanted))
    return DONE


@attempt("kernel-surface", "done")
def copy_the_tree_of_mounts() -> str:
    with contextlib.suppress(OSError):
        system.become_root_of_a_namespace(system.CLONE_NEWNS)
    raw("open_tree", AT_FDCWD, b"/usr", 1 | 0x8000)
    return DONE


@attempt("kernel-surface", "done", needs="Linux 6.15")
def copy_the_tree_of_mounts_with_attributes() -> str:
    with contextlib.suppress(OSError):
        system.become_root_of_a_namespace(system.CLONE_NEWNS)
    wanted = struct.pack("=QQQQ", 0x4, 0, 0, 0)
    raw("open_tree_attr", AT_FDCWD, b"/usr", 1 | 0x8000, wanted, len(wanted))
    return DONE


@attempt("fs-metadata", "done", needs="Linux 6.8")
def list_mounts() -> str:
    """Mount ids lead to the host paths that they show."""
    raw("listmount", _about_mount(_ROOT_MOUNT), ctypes.create_string_buffer(8 * 64), 64, 0)
    return DONE


@attempt("fs-metadata", "done", needs="Linux 6.11")
def describe_a_mount() -> str:
    """Which host folder is mounted here, as /proc would show it."""
    found = ctypes.create_string_buffer(256)
    call("statx", AT_FDCWD, b"/", 0, _STATX_MNT_ID_UNIQUE, found)
    number = int.from_bytes(found.raw[_MNT_ID_AT : _MNT_ID_AT + 8], "little")
    raw("statmount", _about_mount(number, _MNT_ROOT), ctypes.create_string_buffer(4096), 4096, 0)
    return DONE


def _about_mount(number: int, asked: int = 0) -> bytes:
    return struct.pack("=IIQQ", 24, 0, number, asked)


@attempt("kernel-surface", "done")
def open_a_new_file_system() -> str:
    with contextlib.suppress(OSError):
        system.become_root_of_a_namespace(system.CLONE_NEWNS)
    raw("fsopen", b"tmpfs", 0)
    return DONE


@attempt("kernel-surface", "done")
def uncover_by_unmounting() -> str:
    with contextlib.suppress(OSError):
        system.become_root_of_a_namespace(system.CLONE_NEWNS)
    with contextlib.suppress(OSError):
        call("mount", b"tmpfs", b"/usr", b"tmpfs", 0, None)
    call("umount2", b"/usr", 2)
    return DONE


@attempt("kernel-surface", "done")
def change_root(empty: str) -> str:
    with contextlib.suppress(OSError):
        system.become_root_of_a_namespace()
    os.chroot(empty)
    return DONE


@attempt("kernel-surface", "done")
def pivot_root(empty: str) -> str:
    system.become_root_of_a_namespace(system.CLONE_NEWNS)
    call("mount", None, b"/", None, (1 << 18) | 16384, None)
    call("mount", b"tmpfs", os.fsencode(empty), b"tmpfs", 0, None)
    os.chdir(empty)
    raw("pivot_root", b".", b".")
    return DONE


# --- namespaces and privileges -------------------------------------------------------------------


@attempt("kernel-surface", "done")
def unshare_user_namespace() -> str:
    system.unshare(system.CLONE_NEWUSER)
    return DONE


@attempt("kernel-surface", "done")
def unshare_network_namespace() -> str:
    system.become_root_of_a_namespace(system.CLONE_NEWNET)
    return DONE


@attempt("kernel-surface", "done")
def unshare_pid_namespace() -> str:
    system.become_root_of_a_namespace(system.CLONE_NEWPID)
    return DONE


@attempt("kernel-surface", "done")
def clone_into_user_namespace() -> str:
    number = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
    flags = system.CLONE_NEWUSER | system.SIGCHLD
    child = libc.syscall(ctypes.c_long(number), ctypes.c_long(flags), *(ctypes.c_long(0) for _ in range(4)))
    return _child_of(child)


@attempt("kernel-surface", "done")
def clone3_into_user_namespace() -> str:
    """Its flags lie in memory, which no seccomp filter can read."""
    arguments = struct.pack("=8Q", system.CLONE_NEWUSER, 0, 0, 0, system.SIGCHLD, 0, 0, 0)
    return _child_of(libc.syscall(ctypes.c_long(435), arguments, ctypes.c_size_t(len(arguments))))


def _child_of(child: int) -> str:
    if child == 0:
        os._exit(0)
    if child < 0:
        raise OSError(ctypes.get_errno(), "clone")
    os.waitpid(child, 0)
    return DONE


@attempt("kernel-surface", "done")
def enter_namespaces_of_a_process(victim: dict[str, int]) -> str:
    """The victim has its own user namespace, which its user may enter."""
    call("setns", os.open(f"/proc/{victim['namespaced']}/ns/user", os.O_RDONLY), 0)
    return DONE


@attempt("kernel-surface", "done")
def enter_namespaces_by_handle(victim: dict[str, int]) -> str:
    call("setns", os.pidfd_open(victim["namespaced"]), system.CLONE_NEWUSER)
    return DONE


@attempt("kernel-surface", "done")
def find_namespace_of_the_zygote() -> str:
    """NS_GET_USERNS: the owner of the visible mounts."""
    fcntl.ioctl(os.open("/proc/self/ns/mnt", os.O_RDONLY), 0xB701)
    return DONE


@attempt("kernel-surface", "done", only_for="root")
def become_root() -> str:
    os.setresuid(0, 0, 0)
    return DONE


@attempt("kernel-surface", "done", only_for="root")
def hold_capabilities() -> str:
    data = (ctypes.c_uint32 * 6)()
    call("capget", (ctypes.c_uint32 * 2)(0x20080522, 0), data)
    return DONE if data[0] or data[1] else "none"


@attempt("kernel-surface", "done", only_for="root")
def take_capabilities() -> str:
    wanted = (ctypes.c_uint32 * 6)(1, 1, 0, 0, 0, 0)
    call("capset", (ctypes.c_uint32 * 2)(0x20080522, 0), wanted)
    return DONE


@attempt("kernel-surface", "done")
def allow_new_privileges() -> str:
    return DONE if call("prctl", 39, 0, 0, 0, 0) == 0 else "never"


@attempt("kernel-surface", "done")
def become_dumpable() -> str:
    """Then any process of the same user could ptrace it, and use its /proc files."""
    call("prctl", 4, 1, 0, 0, 0)
    return DONE


# --- its own confinement -------------------------------------------------------------------------


@attempt("kernel-surface", "done", needs="Landlock")
def make_landlock_rules() -> str:
    raw("landlock_create_ruleset", struct.pack("=Q", 1), 8, 0)
    return DONE


@attempt("kernel-surface", "done", needs="Landlock")
def widen_landlock_rules_left_open() -> str:
    """Any inherited descriptor may be the ruleset of later workers; the control has one."""
    with contextlib.suppress(OSError):
        raw("landlock_create_ruleset", struct.pack("=Q", 1), 8, 0)
    root = os.open("/", os.O_PATH)
    for number in range(3, 64):
        with contextlib.suppress(OSError):
            raw("landlock_add_rule", number, 1, struct.pack("=Qi", 1, root), 0)
            return DONE
    return "none"


@attempt("kernel-surface", "done")
def add_a_filter_that_asks_a_supervisor() -> str:
    """SECCOMP_FILTER_FLAG_NEW_LISTENER: a supervisor would answer system calls of its children."""
    call("prctl", 38, 1, 0, 0, 0)
    code = ctypes.create_string_buffer(struct.pack("<HBBI", 6, 0, 0, 0x7FFF0000))
    raw("seccomp", 1, 8, struct.pack("HxxxxxxP", 1, ctypes.addressof(code)))
    return DONE


@attempt("kernel-surface", "done")
def weaken_address_layout() -> str:
    call("personality", 0x0040000)
    return DONE


@attempt("kernel-surface", "done", needs="calls of 32-bit programs")
def call_through_the_table_of_32_bits() -> str:
    """On x86_64 `int 0x80` uses the 32-bit table; in a child, because the filter kills."""
    if os.uname().machine != "x86_64":
        raise OSError(errno.ENOSYS, "another architecture")
    code = bytes.fromhex("b814000000cd80c3")  # mov eax, 20 (getpid); int 0x80; ret
    memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
    return DONE if function() == os.getpid() else "other"


@attempt("kernel-surface", "done", needs="x86_64")
def call_with_a_number_of_x32() -> str:
    """The x32 table; a kernel without x32 answers ENOSYS."""
    if os.uname().machine != "x86_64":
        raise OSError(errno.ENOSYS, "another architecture")
    libc.syscall(ctypes.c_long(0x40000000 + 39))
    return DONE


# --- where ways into the kernel are found --------------------------------------------------------


@attempt("kernel-surface", "done", only_for="root", needs="bpf")
def load_a_kernel_program() -> str:
    raw("bpf", 0, struct.pack("=IIII", 2, 4, 8, 1) + bytes(112), 128)
    return DONE


@attempt("kernel-surface", "done", needs="userfaultfd")
def handle_page_faults() -> str:
    raw("userfaultfd", 1)
    return DONE


@attempt("kernel-surface", "done", needs="io_uring")
def set_up_a_ring() -> str:
    """No seccomp filter sees operations submitted through io_uring."""
    raw("io_uring_setup", 4, ctypes.create_string_buffer(120))
    return DONE


@attempt("kernel-surface", "done", needs="Linux 6.17, and a file system with attributes")
def set_attributes_of_a_file(work: str) -> str:
    """Formerly an ioctl, which filters know."""
    mine = Path(work) / "mine"
    mine.touch()
    wanted = struct.pack("=QIIII", _NO_DUMP, 0, 0, 0, 0)
    raw("file_setattr", AT_FDCWD, os.fsencode(mine), wanted, len(wanted), 0)
    return DONE


@attempt("kernel-surface", "done", needs="Linux 6.5")
def ask_what_of_a_file_is_in_memory(work: str) -> str:
    """Since Linux 6.15 only for own files; before, it shows which library pages others use."""
    file = os.open(Path(work) / "mine", os.O_CREAT | os.O_RDWR)
    raw("cachestat", file, struct.pack("=QQ", 0, 4096), ctypes.create_string_buffer(40), 0)
    return DONE


@attempt("kernel-surface", "done", needs="Linux 6.8")
def ask_for_security_modules() -> str:
    size = ctypes.c_uint32(512)
    raw("lsm_list_modules", ctypes.create_string_buffer(512), ctypes.byref(size), 0)
    return DONE


@attempt("kernel-surface", "done", needs="performance counters")
def measure_performance() -> str:
    attributes = struct.pack("=IIQQQQQ", 1, 112, 0, 0, 0, 0, 0b1100001) + bytes(64)
    raw("perf_event_open", attributes, 0, -1, -1, 0)
    return DONE


@attempt("kernel-surface", "done", needs="keys")
def leave_a_key() -> str:
    raw("add_key", b"user", b"toolkeep:escape", b"x", 1, -2)  # The process keyring
    return DONE


@attempt("kernel-surface", "done", needs="local descriptor tables")
def change_descriptor_table() -> str:
    raw("modify_ldt", 1, struct.pack("=IIII", 0, 0, 0, 0b1010001), 16)
    return DONE


@attempt("kernel-surface", "done", only_for="root")
def read_kernel_log() -> str:
    call("klogctl", 10, None, 0)
    return DONE


@attempt("kernel-surface", "done", only_for="root", needs="quotas")
def ask_for_quotas() -> str:
    call("quotactl", 0x800001 << 8, None, 0, None)  # Q_SYNC
    return DONE


@attempt("kernel-surface", "done", only_for="root")
def change_the_name_of_the_machine() -> str:
    with contextlib.suppress(OSError):
        system.unshare(system.CLONE_NEWUTS)  # The control uses its own UTS namespace.
    call("sethostname", b"owned", 5)
    return DONE


@attempt("kernel-surface", "done", only_for="root", needs="fanotify")
def watch_the_whole_file_system() -> str:
    call("fanotify_init", 0, 0)
    return DONE


@attempt("fs-metadata", "done", needs="inotify")
def watch_a_folder(home: str) -> str:
    descriptor = call("inotify_init1", 0)
    call("inotify_add_watch", descriptor, os.fsencode(home), 0x100)
    return DONE


@attempt("kernel-surface", "done", needs="file handles")
def make_a_handle_of_a_file() -> str:
    handle = ctypes.create_string_buffer(struct.pack("=Ii", 128, 0) + bytes(128))
    call("name_to_handle_at", AT_FDCWD, b"/usr", handle, ctypes.byref(ctypes.c_int()), 0)
    return DONE


@attempt("fs-read", "leaked", only_for="root", needs="file handles")
def open_by_handle(key_handle: str, home: str) -> str:
    """The host gives the handle away: guessing it is a matter of time."""
    handle = bytes.fromhex(key_handle)
    for place in (home, "/usr", "/"):
        with contextlib.suppress(OSError):
            mounted = os.open(place, os.O_RDONLY)
            return os.read(call("open_by_handle_at", mounted, handle, os.O_RDONLY), 200).decode()
    return ""


@attempt("kernel-surface", "done")
def type_into_a_terminal() -> str:
    """TIOCSTI into an own pseudo-terminal. Newer kernels refuse it to all but root."""
    child, terminal = pty.fork()
    if child == 0:
        with contextlib.suppress(OSError):
            fcntl.ioctl(0, 0x5412, b"x")
            os._exit(7)
        os._exit(8 if Path("/proc/sys/dev/tty/legacy_tiocsti").exists() else 9)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(terminal)
    return DONE if status in (7, 8) else "refused"


# --- what outlives a call ------------------------------------------------------------------------


@attempt("ipc-closed", "done", needs="System V shared memory")
def leave_a_memory_segment() -> str:
    call("shmctl", call("shmget", 0, 4096, 0o1600), 0, None)
    return DONE


@attempt("ipc-closed", "done", needs="System V message queues")
def leave_a_message_queue() -> str:
    call("msgctl", call("msgget", 0, 0o1600), 0, None)
    return DONE


@attempt("ipc-closed", "done", needs="System V semaphores")
def leave_a_semaphore() -> str:
    call("semctl", call("semget", 0, 1, 0o1600), 0, 0)
    return DONE


@attempt("ipc-closed", "done", needs="POSIX message queues")
def leave_a_posix_queue(mark: str) -> str:
    name = f"/{mark}".encode()
    library = ctypes.CDLL("librt.so.1", use_errno=True) if not hasattr(libc, "mq_open") else libc
    system.checked(library.mq_open(name, os.O_CREAT | os.O_RDWR, 0o600, None))
    library.mq_unlink(name)
    return DONE


@attempt("kernel-surface", "done", needs="memfd")
def run_a_program_without_a_path() -> str:
    program = os.memfd_create("program")
    os.write(program, Path("/bin/true").read_bytes())
    child = os.fork()
    if child == 0:
        with contextlib.suppress(OSError):
            empty = (ctypes.c_char_p * 1)(None)
            raw("execveat", program, b"", empty, empty, 0x1000)
        os._exit(9)
    return DONE if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 else "refused"


@attempt("kernel-surface", "done", only_for="root")
def open_settings_of_the_kernel() -> str:
    """Only opens: the control must not change the machine."""
    os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))
    return DONE


@attempt("kernel-surface", "done", only_for="root")
def start_tracing_at_once() -> str:
    """PTRACE_TRACEME: a first step that needs no pid."""
    child = os.fork()
    if child == 0:
        os._exit(7 if libc.ptrace(0, 0, None, None) == 0 else 9)
    return DONE if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7 else "refused"
