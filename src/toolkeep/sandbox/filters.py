"""Which system calls each level of isolation leaves to a worker, and why.

Comes in: the architecture, and what the call was granted. Goes out: a `Profile`, whose program is bytes.

    standard    every call but those that reach beyond the process or outlive it; the rest is allowed
    strict      only what ordinary programs need; the rest is refused
    restricted  computing, threads, and reading what other layers let it name; no writing, no processes,
                no sockets but a stream pair

A filter is one layer. It cannot see a path or an address: which files and hosts are reached is for the mount
namespace, Landlock and the network namespace to say, and it must be installed after them, because it takes
away the calls that set them up. It does not bound time or memory, and it trusts the kernel.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from errno import EACCES, EAFNOSUPPORT, EINVAL, ENOPROTOOPT, ENOSYS, ENOTTY, EOPNOTSUPP, EPERM
from typing import Final

from toolkeep.sandbox.bpf import (
    ALLOW,
    Action,
    Choice,
    HasFlag,
    IsOneOf,
    IsOwnPid,
    Program,
    Rule,
    Test,
    assemble,
    errno,
)
from toolkeep.sandbox.levels import Isolation
from toolkeep.sandbox.syscalls import Architecture, this_machine

REFUSED: Final = errno(EPERM)

ABSENT: Final = errno(ENOSYS)
"""For calls that keep their arguments in memory: libc then takes the older call, which can be judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A table of rules for one architecture."""

    architecture: Architecture
    rules: Mapping[str, Rule]
    default: Action

    def program(self) -> Program:
        """Assemble it."""
        return assemble(self.rules, self.default, self.architecture)


def _all(groups: Iterable[str], rule: Rule) -> dict[str, Rule]:
    return {name: rule for group in groups for name in group.split()}


def _only_if(test: Test, refusal: Action = REFUSED) -> Rule:
    return Choice(test, ALLOW, refusal)


def _unless(test: Test, refusal: Action = REFUSED) -> Rule:
    return Choice(test, refusal, ALLOW)


# --- allowed wherever something runs at all --------------------------------------------------------

_COMPUTE: Final = """
    mmap mprotect munmap mremap brk madvise msync mincore mlock mlock2 munlock membarrier mseal
    pkey_mprotect pkey_alloc pkey_free map_shadow_stack arch_prctl get_mempolicy
    futex futex_waitv futex_wait futex_wake futex_requeue set_robust_list get_robust_list rseq
    set_tid_address sched_yield getcpu restart_syscall exit exit_group
    uretprobe uprobe
"""
"""Memory and threads of its own. uprobe and uretprobe are made by the kernel's own trampolines when an
operator traces the machine, and work from nowhere else."""

_DESCRIPTORS: Final = """
    read readv pread64 preadv preadv2 write writev pwrite64 pwritev pwritev2 lseek close close_range
    fstat dup dup2 dup3 pipe pipe2 poll ppoll select pselect6
    epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2
    eventfd eventfd2 signalfd signalfd4 timerfd_create timerfd_settime timerfd_gettime
"""
"""What it already holds, and what only it can hold."""

_SIGNALS_AND_TIME: Final = """
    rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend sigaltstack pause
    nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time times
    alarm getitimer setitimer
    timer_create timer_settime timer_gettime timer_getoverrun timer_delete
"""
"""Its own handlers, clocks and timers; setting a clock is not here."""

_ABOUT_ITSELF: Final = """
    getpid gettid getppid getpgrp getpgid getsid getuid geteuid getgid getegid getresuid getresgid
    getgroups capget getrlimit getrusage getpriority sched_getaffinity sched_getparam
    sched_getscheduler sched_getattr sched_get_priority_max sched_get_priority_min
    sched_rr_get_interval uname sysinfo getrandom wait4 waitid
"""
"""Questions whose answer is about the process, or no secret."""

_PAIR: Final = """
    recvfrom recvmsg shutdown getsockname getpeername getsockopt
"""
"""What an event loop does with the stream pair that wakes it."""

# --- allowed where files are --------------------------------------------------------------------

_READ_FILES: Final = """
    stat lstat newfstatat statx access faccessat faccessat2 readlink readlinkat
    getdents getdents64 getcwd chdir fchdir statfs fstatfs readahead fadvise64
    getxattr lgetxattr fgetxattr getxattrat listxattr llistxattr flistxattr listxattrat
"""
"""Looking at what other layers let it name."""

_WRITE_FILES: Final = """
    rmdir unlink unlinkat rename renameat symlink symlinkat link linkat
    truncate ftruncate copy_file_range sendfile fsync fdatasync sync_file_range flock umask
    utime utimes futimesat utimensat
"""
"""Changing it. Owners stay as they are, and no device, pipe or socket is named: chown and mknod are not
here."""

_EXTENDED_ATTRIBUTES: Final = """
    setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat
"""
"""Hidden beside the contents, and some decide on access. cp and sed copy them, and go on without where
a file system has none: so these say."""

# --- allowed where processes are -----------------------------------------------------------------

_SPAWN: Final = """
    fork vfork execve setpgid setsid
    kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_open pidfd_send_signal
"""
"""Children and signals to them. Whom a signal can reach is for the pid namespace to say.
execveat is not here: it runs what no path names, such as a memfd."""

# --- rules on arguments --------------------------------------------------------------------------
# The kernel reads pids, commands, options, families and modes as int: their tests ignore the high half.

_NAMESPACES: Final = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET: privileges over a namespace of
one's own open most of the kernel's attack surface. NEWTIME has no bit in clone."""

_CLONE_PARENT: Final = 0x00008000
"""The child would belong to whoever started the worker, and outlive it."""

_CLONE_PTRACE: Final = 0x00002000
_CLONE_THREAD: Final = 0x00010000

_FORBIDDEN_CLONE: Final = HasFlag(0, _NAMESPACES | _CLONE_PARENT | _CLONE_PTRACE)

_PROCESSES: Final[Mapping[str, Rule]] = {
    **_all((_SPAWN,), ALLOW),
    "clone": _unless(_FORBIDDEN_CLONE),
    "clone3": ABSENT,
}

_THREADS: Final[Mapping[str, Rule]] = {
    "clone": Choice(_FORBIDDEN_CLONE, REFUSED, _only_if(HasFlag(0, _CLONE_THREAD))),
    "clone3": ABSENT,
    # abort(), raise() and pthread_kill() need these. tkill names a thread without its process: refused.
    "kill": _only_if(IsOwnPid(0)),
    "tgkill": _only_if(IsOwnPid(0)),
    "rt_sigqueueinfo": _only_if(IsOwnPid(0)),
    "rt_tgsigqueueinfo": _only_if(IsOwnPid(0)),
}

_TUNE_ONESELF: Final[Mapping[str, Rule]] = {
    # Of the same user any process may be reniced, moved or limited: pid 0 is the caller.
    "setpriority": Choice(IsOneOf(0, (0,)), _only_if(IsOneOf(1, (0,))), REFUSED),
    "sched_setaffinity": _only_if(IsOneOf(0, (0,))),
    "prlimit64": _only_if(IsOneOf(0, (0,))),
    "setrlimit": ALLOW,
}

_READ_OWN_LIMITS: Final[Mapping[str, Rule]] = {
    "prlimit64": Choice(IsOneOf(0, (0,)), _only_if(IsOneOf(2, (0,), is_wide=True)), REFUSED),
    "setrlimit": REFUSED,
}
"""The third argument points to the new limit; NULL only asks."""

_SCHEDULE_ONESELF: Final[Mapping[str, Rule]] = {
    "sched_setscheduler": _only_if(IsOneOf(0, (0,))),
    "sched_setparam": _only_if(IsOneOf(0, (0,))),
    "sched_setattr": _only_if(IsOneOf(0, (0,))),
    # IOPRIO_WHO_PROCESS is 1; the others name a group or a user.
    "ioprio_set": Choice(IsOneOf(0, (1,)), _only_if(IsOneOf(1, (0,))), REFUSED),
}
"""The same, for what only the standard level leaves."""

_SETUID_BITS: Final = 0o6000
_CREATES: Final = 0o100 | 0o20000000
"""O_CREAT and the bit of O_TMPFILE: without them the mode of an open is whatever the register held."""


def _open_without_setuid(flags: int, mode: int) -> Rule:
    return Choice(HasFlag(flags, _CREATES), _unless(HasFlag(mode, _SETUID_BITS)), ALLOW)


_MODES: Final[Mapping[str, Rule]] = {
    # A setuid file left behind runs as the worker's user for whoever starts it later.
    "open": _open_without_setuid(1, 2),
    "openat": _open_without_setuid(2, 3),
    "openat2": ABSENT,
    "creat": _unless(HasFlag(1, _SETUID_BITS)),
    "mkdir": _unless(HasFlag(1, _SETUID_BITS)),
    "mkdirat": _unless(HasFlag(2, _SETUID_BITS)),
    "chmod": _unless(HasFlag(1, _SETUID_BITS)),
    "fchmod": _unless(HasFlag(1, _SETUID_BITS)),
    "fchmodat": _unless(HasFlag(2, _SETUID_BITS)),
    "fchmodat2": _unless(HasFlag(2, _SETUID_BITS)),
}

_RENAME_WHITEOUT: Final = 4

_RENAMES: Final[Mapping[str, Rule]] = {
    # A whiteout, left where the file was, is a device. Landlock does not ask whether one may be made.
    "renameat2": _unless(HasFlag(4, _RENAME_WHITEOUT), errno(EINVAL)),
}

_MAKE_ROOM, _PUNCH_HOLE = 0, 3

_ROOM: Final[Mapping[str, Rule]] = {
    # Room that is kept beyond the end of a file, and contents that are moved on, pass the limit of its size.
    "fallocate": _only_if(IsOneOf(1, (_MAKE_ROOM, _PUNCH_HOLE)), errno(EOPNOTSUPP)),
}

_MODES_OF_NODES: Final[Mapping[str, Rule]] = {
    # mknod makes regular files too.
    "mknod": _unless(HasFlag(1, _SETUID_BITS)),
    "mknodat": _unless(HasFlag(2, _SETUID_BITS)),
}

_WRITES: Final = 0o3 | 0o1000 | _CREATES
"""O_WRONLY, O_RDWR, O_TRUNC and what creates."""

_OPEN_TO_READ: Final[Mapping[str, Rule]] = {
    "open": _unless(HasFlag(1, _WRITES), errno(EACCES)),
    "openat": _unless(HasFlag(2, _WRITES), errno(EACCES)),
    "openat2": ABSENT,
}

_FCNTL_DESCRIPTOR: Final = (0, 1, 2, 3, 4, 1030, 1031, 1032)
"""F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC, F_SETPIPE_SZ, F_GETPIPE_SZ."""

_FCNTL_LOCKS: Final = (5, 6, 7, 36, 37, 38)
"""F_GETLK, F_SETLK, F_SETLKW and the same three for open file descriptions."""

_FCNTL_SIGNALS: Final = (8, 10, 15, 1024, 1026)
"""F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE, F_NOTIFY: any process of the user could be sent a signal,
or be held up by a lease."""

_IOCTL_HARMLESS: Final = (0x5401, 0x802C542A, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""TCGETS and TCGETS2 (is it a terminal?), TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX."""

_IOCTL_HOSTILE: Final = (0x5412, 0x541C, 0x5423, 0x8901, 0x8902)
"""TIOCSTI types into the terminal of whoever started us, TIOCLINUX pastes there; TIOCSETD loads line
disciplines into the kernel; FIOSETOWN and SIOCSPGRP are F_SETOWN by another name."""

_PRCTL_HARMLESS: Final = (1, 2, 3, 15, 16, 21, 23, 29, 30, 36, 37, 38, 39, 40, 41, 42, 0x53564D41)
"""PDEATHSIG (set, get), GET_DUMPABLE, NAME (set, get), GET_SECCOMP, CAPBSET_READ, TIMERSLACK (set, get),
CHILD_SUBREAPER (set, get), NO_NEW_PRIVS (set, get), GET_TID_ADDRESS, THP_DISABLE (set, get), SET_VMA."""

_PRCTL_HOSTILE: Final = (22, 35, 0x59616D61)
"""SET_SECCOMP is the seccomp call by another name, SET_MM rewrites what /proc says of the process,
SET_PTRACER lets another process trace it."""

_OWN_CONTROLS: Final[Mapping[str, Rule]] = {
    "fcntl": _only_if(IsOneOf(1, _FCNTL_DESCRIPTOR)),
    "ioctl": _only_if(IsOneOf(1, _IOCTL_HARMLESS), errno(ENOTTY)),
    "prctl": _only_if(IsOneOf(0, _PRCTL_HARMLESS)),
}

_LOCKS: Final[Mapping[str, Rule]] = {"fcntl": _only_if(IsOneOf(1, _FCNTL_DESCRIPTOR + _FCNTL_LOCKS))}

# --- for programs that are stopped between calls --------------------------------------------------

_SIGCONT: Final = 18
_EXIT_SIGNAL: Final = 0xFF
"""The bits of clone's flags that hold the signal which the parent gets when the child ends."""
_SET_PDEATHSIG: Final = 1


def _without_continuing(rules: Mapping[str, Rule]) -> dict[str, Rule]:
    """The same without the calls by which the kernel would continue a program that the host stopped (SBX-2).

    A timer, or the end of a parent or a child, can be made to send SIGCONT. So can a descriptor and a message
    queue, but F_SETSIG and mq_notify are refused everywhere. The timer's signal lies in memory: no timers.
    """
    is_continuing_child = IsOneOf(0, (_SIGCONT,), mask=_EXIT_SIGNAL)
    is_continued_orphan = IsOneOf(1, (_SIGCONT,))
    return {
        **rules,
        "timer_create": REFUSED,
        "clone": Choice(is_continuing_child, REFUSED, rules["clone"]),
        "prctl": Choice(
            IsOneOf(0, (_SET_PDEATHSIG,)), Choice(is_continued_orphan, REFUSED, ALLOW), rules["prctl"]
        ),
    }


# --- sockets -------------------------------------------------------------------------------------

_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_TYPE: Final = 0xF
"""The bits of a socket's type; the others are SOCK_NONBLOCK and SOCK_CLOEXEC."""
_STREAM: Final = 1

_SOL_SOCKET, _SOL_TCP = 1, 6
_ATTACH_FILTERS: Final = (26, 50, 51, 52)
"""SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF and _EBPF: programs for the kernel to run."""
_TCP_ULP: Final = 31
"""Puts a protocol of the kernel's, such as TLS, on top of the connection."""

_NO_OPTION: Final = errno(ENOPROTOOPT)
_NO_FAMILY: Final = errno(EAFNOSUPPORT)

_FASTOPEN: Final = 0x20000000
"""MSG_FASTOPEN connects while it sends, and Landlock judges connect() only."""

_STREAM_PAIR: Final[Mapping[str, Rule]] = {
    # A datagram socket, even one end of a pair, can sendto() any unix datagram socket it can name.
    "socketpair": Choice(IsOneOf(0, (_UNIX,)), _only_if(IsOneOf(1, (_STREAM,), mask=_TYPE)), REFUSED),
    # The fifth argument points to an address; NULL sends to the peer.
    "sendto": Choice(HasFlag(3, _FASTOPEN), REFUSED, _only_if(IsOneOf(4, (0,), is_wide=True))),
    "setsockopt": Choice(
        IsOneOf(1, (_SOL_SOCKET,)),
        _unless(IsOneOf(2, _ATTACH_FILTERS), _NO_OPTION),
        Choice(IsOneOf(1, (_SOL_TCP,)), _unless(IsOneOf(2, (_TCP_ULP,)), _NO_OPTION), _NO_OPTION),
    ),
}

_SENDMSG: Final[Mapping[str, Rule]] = {"sendmsg": _unless(HasFlag(2, _FASTOPEN))}

_CONNECT: Final[Mapping[str, Rule]] = {
    # TCP only: Landlock knows the ports of TCP alone, and datagrams on a shared loopback join two calls.
    # Protocol 0 or 6: MPTCP, SCTP and SMC are streams too, and not under its rules.
    "socket": Choice(
        IsOneOf(0, (_INET, _INET6)),
        Choice(IsOneOf(1, (_STREAM,), mask=_TYPE), _only_if(IsOneOf(2, (0, 6))), REFUSED),
        _NO_FAMILY,
    ),
    "connect": ALLOW,
}

# --- refused at the standard level ---------------------------------------------------------------

_OTHER_PROCESSES: Final = """
    ptrace process_vm_readv process_vm_writev process_madvise process_mrelease kcmp pidfd_getfd
    migrate_pages move_pages
"""
"""Reading, writing or steering another process; taking its descriptors."""

_KERNEL_SURFACE: Final = """
    bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register
    keyctl add_key request_key modify_ldt lookup_dcookie nfsservctl uselib _sysctl
    kexec_load kexec_file_load init_module finit_module delete_module create_module
    get_kernel_syms query_module iopl ioperm
"""
"""Where most ways into the kernel were found, and what only an administrator uses. io_uring also carries
out calls that no filter sees; keys are kept by user, not by process."""

_MOUNTS_AND_NAMESPACES: Final = """
    mount umount2 pivot_root chroot move_mount open_tree open_tree_attr fsopen fsconfig fsmount fspick
    mount_setattr unshare setns
"""
"""The root, the mounts and the namespaces are the sandbox."""

_FILES_PAST_THEIR_PATHS: Final = """
    open_by_handle_at name_to_handle_at fanotify_init fanotify_mark
"""
"""A file opened by handle, or seen through fanotify, need not be under any granted path."""

_THE_WHOLE_MACHINE: Final = """
    reboot swapon swapoff sethostname setdomainname acct quotactl quotactl_fd syslog vhangup
    settimeofday clock_settime adjtimex clock_adjtime
"""
"""Clocks, names, quotas and logs that every other process shares."""

_ITS_OWN_CONFINEMENT: Final = """
    seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self lsm_set_self_attr
"""
"""No layer is added and none is widened: a filter that asks a supervisor could answer for what it spawns,
and a ruleset whose descriptor was left open takes further paths."""

_OUTLIVES_THE_PROCESS: Final = """
    shmget shmat shmctl shmdt msgget msgsnd msgrcv msgctl semget semop semtimedop semctl
    mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr
    memfd_create memfd_secret execveat
"""
"""Memory and messages that stay after the worker and reach the next one wherever the IPC namespace is
shared, and memory that no limit of the process counts. A memfd also runs as a program that no path names,
and execveat is how."""

_STANDARD_DENIED: Final = (
    _OTHER_PROCESSES,
    _KERNEL_SURFACE,
    _MOUNTS_AND_NAMESPACES,
    _FILES_PAST_THEIR_PATHS,
    _THE_WHOLE_MACHINE,
    _ITS_OWN_CONFINEMENT,
    _OUTLIVES_THE_PROCESS,
)

_STANDARD_RULES: Final[Mapping[str, Rule]] = {
    **_PROCESSES,
    **_TUNE_ONESELF,
    **_SCHEDULE_ONESELF,
    **_MODES,
    **_MODES_OF_NODES,
    **_ROOM,
    "fcntl": _unless(IsOneOf(1, _FCNTL_SIGNALS)),
    "ioctl": _unless(IsOneOf(1, _IOCTL_HOSTILE)),
    "prctl": _unless(IsOneOf(0, _PRCTL_HOSTILE)),
    # Packet, vsock, crypto and the rest: no network namespace covers vsock, and each is surface.
    "socket": _only_if(IsOneOf(0, (_UNIX, _INET, _INET6, _NETLINK)), _NO_FAMILY),
    # ADDR_NO_RANDOMIZE and READ_IMPLIES_EXEC weaken what follows; 0 is plain Linux, the other one asks.
    "personality": _only_if(IsOneOf(0, (0, 0xFFFFFFFF))),
}

# --- the profiles --------------------------------------------------------------------------------

_EVERYWHERE: Final = (_COMPUTE, _DESCRIPTORS, _SIGNALS_AND_TIME, _ABOUT_ITSELF, _PAIR)


def for_level(
    level: Isolation, *, may_spawn: bool = False, may_connect: bool = False, is_suspendable: bool = False
) -> Profile:
    """The filter of a level on this machine; what a call may do beyond it counts at strict only.

    What is suspendable cannot continue itself once it was stopped.
    """
    architecture = this_machine()
    if architecture is None:
        raise ValueError("there is no system call filter for this kind of processor")
    if level is Isolation.STANDARD:
        profile = standard(architecture)
    elif level is Isolation.STRICT:
        profile = strict(architecture, may_spawn=may_spawn, may_connect=may_connect)
    else:
        profile = restricted(architecture)
    return suspendable(profile) if is_suspendable else profile


def suspendable(profile: Profile) -> Profile:
    """A profile without what would continue a program that the host stopped."""
    rules = _without_continuing(profile.rules)
    return _profile(profile.architecture, rules, default=profile.default)


def standard(architecture: Architecture) -> Profile:
    """Everything but what reaches beyond the process or outlives it."""
    rules = {**_all(_STANDARD_DENIED, REFUSED), **_STANDARD_RULES}
    return _profile(architecture, rules, default=ALLOW)


def strict(architecture: Architecture, *, may_spawn: bool, may_connect: bool) -> Profile:
    """What ordinary programs need: files, threads, and where granted processes and TCP connections."""
    rules = {
        **_all((*_EVERYWHERE, _READ_FILES, _WRITE_FILES), ALLOW),
        **_all((_EXTENDED_ATTRIBUTES,), errno(EOPNOTSUPP)),
        **_OWN_CONTROLS,
        **_LOCKS,
        **_TUNE_ONESELF,
        **_MODES,
        **_RENAMES,
        **_ROOM,
        **_STREAM_PAIR,
        **_SENDMSG,
        **(_PROCESSES if may_spawn else _THREADS),
        **(_CONNECT if may_connect else {}),
    }
    return _profile(architecture, rules, default=REFUSED)


def restricted(architecture: Architecture) -> Profile:
    """Threads and reading; no writing, no processes, no sockets but a stream pair."""
    rules = {
        **_all((*_EVERYWHERE, _READ_FILES), ALLOW),
        **_OPEN_TO_READ,
        **_OWN_CONTROLS,
        **_TUNE_ONESELF,
        **_READ_OWN_LIMITS,
        **_THREADS,
        **_STREAM_PAIR,
    }
    return _profile(architecture, rules, default=REFUSED)


def _profile(architecture: Architecture, rules: Mapping[str, Rule], *, default: Action) -> Profile:
    """Keep the rules of the calls that this architecture has."""
    present = {name: rule for name, rule in rules.items() if name in architecture.numbers}
    return Profile(architecture=architecture, rules=present, default=default)
