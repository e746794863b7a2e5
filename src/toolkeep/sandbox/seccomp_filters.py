"""seccomp profiles: which system calls each isolation level allows a worker, and why.

Input: the architecture and the grants of the call. Output: a `Profile`, which assembles to BPF.

    standard    denylist: calls that reach beyond the process or outlive it are refused
    strict      allowlist: only what ordinary programs need
    restricted  allowlist: computing, threads, reading; no writing, no processes,
                no sockets but a pair

A filter is one layer. It cannot see paths or addresses: the mount namespace, Landlock and the network
namespace decide which files and hosts are reachable. It must be installed after them, because it takes away
the calls that set them up. It does not bound time or memory, and it trusts the kernel.
"""

import functools
from collections.abc import Iterable, Mapping
from errno import EACCES, EAFNOSUPPORT, EINVAL, ENOPROTOOPT, ENOSYS, ENOTTY, EOPNOTSUPP, EPERM
from typing import Any, Final

import msgspec

from toolkeep.sandbox.isolation_levels import Isolation
from toolkeep.sandbox.seccomp_bpf import (
    ALLOW,
    NOTIFY,
    TRACE,
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
from toolkeep.sandbox.syscalls import Architecture, this_machine

REFUSED: Final = errno(EPERM)

ABSENT: Final = errno(ENOSYS)
"""For calls whose arguments lie in memory, which BPF cannot read (clone3, openat2). ENOSYS makes libc fall
back to the older call, whose arguments are in registers."""


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """Rules for one architecture."""

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
"""Own memory and threads. uprobe and uretprobe come from kernel trampolines when an operator traces the
machine, and work from nowhere else; refusing them would crash a traced worker."""

_DESCRIPTORS: Final = """
    read readv pread64 preadv preadv2 write writev pwrite64 pwritev pwritev2 lseek close close_range
    fstat dup dup2 dup3 pipe pipe2 poll ppoll select pselect6
    epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2
    eventfd eventfd2 signalfd signalfd4 timerfd_create timerfd_settime timerfd_gettime
"""
"""Descriptors that it holds already, and kinds that nobody else can reach."""

_SIGNALS_AND_TIME: Final = """
    rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend sigaltstack pause
    nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time times
    alarm getitimer setitimer
    timer_create timer_settime timer_gettime timer_getoverrun timer_delete
"""
"""Own signal handlers, clocks and timers; setting a clock is not included."""

_PROCESS_INFO: Final = """
    getpid gettid getppid getpgrp getpgid getsid getuid geteuid getgid getegid getresuid getresgid
    getgroups capget getrlimit getrusage getpriority sched_getaffinity sched_getparam
    sched_getscheduler sched_getattr sched_get_priority_max sched_get_priority_min
    sched_rr_get_interval uname sysinfo getrandom wait4 waitid
"""
"""Queries about the process itself, or about nothing secret."""

_SOCKETPAIR: Final = """
    recvfrom recvmsg shutdown getsockname getpeername getsockopt
"""
"""What an event loop does with its wake-up socket pair."""

# --- allowed where files are --------------------------------------------------------------------

_READ_FILES: Final = """
    stat lstat newfstatat statx access faccessat faccessat2 readlink readlinkat
    getdents getdents64 getcwd chdir fchdir statfs fstatfs readahead fadvise64
    getxattr lgetxattr fgetxattr getxattrat listxattr llistxattr flistxattr listxattrat
"""
"""Reading what the mount namespace and Landlock let it name."""

_WRITE_FILES: Final = """
    rmdir unlink unlinkat rename renameat symlink symlinkat link linkat
    truncate ftruncate copy_file_range sendfile fsync fdatasync sync_file_range flock umask
    utime utimes futimesat utimensat
"""
"""Changing it. chown and mknod are missing: owners stay, and no device, FIFO or socket is created for others
to trip over."""

_EXTENDED_ATTRIBUTES: Final = """
    setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat
"""
"""Refused as unsupported: they are invisible to most tools, and some of them decide on access (ACLs,
capabilities). cp and sed go on without them where a file system reports EOPNOTSUPP."""

# --- allowed where processes are -----------------------------------------------------------------

_SPAWN: Final = """
    fork vfork execve setpgid setsid
    kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_open pidfd_send_signal capset
"""
"""Child processes and signals to them; the pid namespace limits whom a signal reaches. capset: browsers drop
the capabilities of their children, and a worker has none that it could keep. execveat is missing: it runs
files that no path names, such as a memfd, past Landlock's execute rules."""

# --- rules on arguments ---------------------------------------------------------------------------
# The kernel reads pids, commands, options, families and modes as int, so their tests ignore the high half.

_NAMESPACES: Final = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET: capabilities in a namespace of one's
own open most of the kernel's attack surface. NEWTIME has no bit in clone."""

_CLONE_PARENT: Final = 0x00008000
"""The child would become a child of the zygote, and outlive the worker."""

_CLONE_PTRACE: Final = 0x00002000
"""The child would be traced by whoever traces the caller."""
_CLONE_UNTRACED: Final = 0x00800000
"""The child would escape a template's fork server, which stops each process of an import by tracing it."""
_CLONE_THREAD: Final = 0x00010000

_FORBIDDEN_CLONE: Final = HasFlag(0, _NAMESPACES | _CLONE_PARENT | _CLONE_PTRACE | _CLONE_UNTRACED)
"""Flags that no worker may pass to clone."""

_PROCESSES: Final[Mapping[str, Rule]] = {
    **_all((_SPAWN,), ALLOW),
    "clone": _unless(_FORBIDDEN_CLONE),
    "clone3": ABSENT,
}

_THREADS: Final[Mapping[str, Rule]] = {
    "clone": Choice(_FORBIDDEN_CLONE, REFUSED, _only_if(HasFlag(0, _CLONE_THREAD))),
    "clone3": ABSENT,
    # abort(), raise() and pthread_kill() need these. tkill stays refused: it names a thread without its
    # process, so a reused thread id could be another process's.
    "kill": _only_if(IsOwnPid(0)),
    "tgkill": _only_if(IsOwnPid(0)),
    "rt_sigqueueinfo": _only_if(IsOwnPid(0)),
    "rt_tgsigqueueinfo": _only_if(IsOwnPid(0)),
}

_OWN_PRIORITY_AND_LIMITS: Final[Mapping[str, Rule]] = {
    # All workers have one uid, and a process may renice, move or limit any process of its user. pid 0 is the
    # caller itself.
    "setpriority": Choice(IsOneOf(0, (0,)), _only_if(IsOneOf(1, (0,))), REFUSED),
    "sched_setaffinity": _only_if(IsOneOf(0, (0,))),
    "prlimit64": _only_if(IsOneOf(0, (0,))),
    "setrlimit": ALLOW,
}

_READ_OWN_LIMITS: Final[Mapping[str, Rule]] = {
    "prlimit64": Choice(IsOneOf(0, (0,)), _only_if(IsOneOf(2, (0,), is_wide=True)), REFUSED),
    "setrlimit": REFUSED,
}
"""The third argument of prlimit64 points to the new limit; NULL only queries."""

_OWN_SCHEDULING: Final[Mapping[str, Rule]] = {
    "sched_setscheduler": _only_if(IsOneOf(0, (0,))),
    "sched_setparam": _only_if(IsOneOf(0, (0,))),
    "sched_setattr": _only_if(IsOneOf(0, (0,))),
    # IOPRIO_WHO_PROCESS is 1; the other values name a process group or a user.
    "ioprio_set": Choice(IsOneOf(0, (1,)), _only_if(IsOneOf(1, (0,))), REFUSED),
}
"""The same for scheduling calls that only the standard level allows."""

_SETUID_BITS: Final = 0o6000
"""S_ISUID and S_ISGID."""
_CREATES: Final = 0o100 | 0o20000000
"""O_CREAT and the bit of O_TMPFILE. Without them `mode` is not passed, and the register holds anything."""


def _open_without_setuid(flags: int, mode: int) -> Rule:
    return Choice(HasFlag(flags, _CREATES), _unless(HasFlag(mode, _SETUID_BITS)), ALLOW)


_MODES: Final[Mapping[str, Rule]] = {
    # A setuid file left in a granted folder would run as the worker's user, on the host, for whoever starts
    # it.
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
    # RENAME_WHITEOUT leaves a character device behind, and Landlock does not check MAKE_CHAR for it.
    "renameat2": _unless(HasFlag(4, _RENAME_WHITEOUT), errno(EINVAL)),
}

_ALLOCATE, _PUNCH_HOLE = 0, 3

_FALLOCATE: Final[Mapping[str, Rule]] = {
    # Other modes allocate space beyond the end of a file (KEEP_SIZE) or shift its contents (INSERT_RANGE),
    # past RLIMIT_FSIZE.
    "fallocate": _only_if(IsOneOf(1, (_ALLOCATE, _PUNCH_HOLE)), errno(EOPNOTSUPP)),
}

_MODES_OF_NODES: Final[Mapping[str, Rule]] = {
    # mknod creates regular files too, with any mode.
    "mknod": _unless(HasFlag(1, _SETUID_BITS)),
    "mknodat": _unless(HasFlag(2, _SETUID_BITS)),
}

_WRITES: Final = 0o3 | 0o1000 | _CREATES
"""O_WRONLY, O_RDWR, O_TRUNC and the creating flags."""

_OPEN_TO_READ: Final[Mapping[str, Rule]] = {
    "open": _unless(HasFlag(1, _WRITES), errno(EACCES)),
    "openat": _unless(HasFlag(2, _WRITES), errno(EACCES)),
    "openat2": ABSENT,
}

_FCNTL_DESCRIPTOR: Final = (0, 1, 2, 3, 4, 1030, 1031, 1032)
"""F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC, F_SETPIPE_SZ, F_GETPIPE_SZ."""

_FCNTL_LOCKS: Final = (5, 6, 7, 36, 37, 38)
"""F_GETLK, F_SETLK, F_SETLKW, and the same for open file descriptions."""

_FCNTL_SIGNALS: Final = (8, 10, 15, 1024, 1026)
"""F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE, F_NOTIFY: they send signals to any process of the user, or
block other processes by a lease."""

_IOCTL_HARMLESS: Final = (0x5401, 0x802C542A, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""TCGETS and TCGETS2 (isatty), TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX."""

_IOCTL_HOSTILE: Final = (0x5412, 0x541C, 0x5423, 0x8901, 0x8902)
"""TIOCSTI types into the controlling terminal, TIOCLINUX pastes there; TIOCSETD loads kernel line
disciplines; FIOSETOWN and SIOCSPGRP equal F_SETOWN."""

_PRCTL_HARMLESS: Final = (1, 2, 3, 15, 16, 21, 23, 29, 30, 36, 37, 38, 39, 40, 41, 42, 0x53564D41)
"""PDEATHSIG (set, get), GET_DUMPABLE, NAME (set, get), GET_SECCOMP, CAPBSET_READ, TIMERSLACK (set, get),
CHILD_SUBREAPER (set, get), NO_NEW_PRIVS (set, get), GET_TID_ADDRESS, THP_DISABLE (set, get), SET_VMA."""

_PRCTL_HOSTILE: Final = (22, 35, 0x59616D61)
"""SET_SECCOMP equals the seccomp call, SET_MM rewrites what /proc shows of the process, SET_PTRACER lets
another process trace it."""

_OWN_CONTROLS: Final[Mapping[str, Rule]] = {
    "fcntl": _only_if(IsOneOf(1, _FCNTL_DESCRIPTOR)),
    "ioctl": _only_if(IsOneOf(1, _IOCTL_HARMLESS), errno(ENOTTY)),
    "prctl": _only_if(IsOneOf(0, _PRCTL_HARMLESS)),
}

_LOCKS: Final[Mapping[str, Rule]] = {"fcntl": _only_if(IsOneOf(1, _FCNTL_DESCRIPTOR + _FCNTL_LOCKS))}

# --- suspended programs ---------------------------------------------------------------------------
_SIGCONT: Final = 18
_EXIT_SIGNAL: Final = 0xFF
"""Bits of clone's flags with the signal that the parent gets when the child exits."""
_SET_PDEATHSIG: Final = 1


def _without_sigcont(rules: Mapping[str, Rule]) -> dict[str, Rule]:
    """The rules without the calls by which a suspended program could send itself SIGCONT (SBX-2).

    A timer, or the exit of a parent or a child, can be set up to send SIGCONT. So can a descriptor and a
    message queue, but F_SETSIG and mq_notify are refused everywhere. timer_create takes its signal from
    memory, which BPF cannot read, so it is refused as a whole.
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


# --- templates ----------------------------------------------------------------------------------
TRACED_DIRECTORY: Final = -1094 & 0xFFFFFFFF
"""As in `guest/fork_server`: the first argument of the openat calls that a fork server injects."""
_SET_DUMPABLE: Final = 4


def _traced(rules: Mapping[str, Rule], default: Action) -> dict[str, Rule]:
    """The rules of a template and its workers: what their fork server does to them passes by its tracer.

    A worker has none: there these calls fail with ENOSYS.
    """
    clone = rules["clone"]
    if not isinstance(clone, Choice):
        raise ValueError("there is no level that allows every clone, or none")
    return {
        **rules,
        "capset": TRACE,
        "clone": Choice(_FORBIDDEN_CLONE, TRACE, clone.otherwise),
        "openat": Choice(IsOneOf(0, (TRACED_DIRECTORY,)), TRACE, rules.get("openat", default)),
        "prctl": Choice(IsOneOf(0, (_SET_DUMPABLE,)), TRACE, rules.get("prctl", default)),
    }


# --- sockets -------------------------------------------------------------------------------------

_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_TYPE: Final = 0xF
"""Bits of a socket's type; the rest are SOCK_NONBLOCK and SOCK_CLOEXEC."""
_STREAM: Final = 1
_SEQPACKET: Final = 5
_CONNECTED_TYPES: Final = (_STREAM, _SEQPACKET)
"""Unix sockets of these types send to their peer alone: the kernel refuses an address in sendmsg(2) on the
first and ignores it on the second. A datagram socket (SOCK_RAW is one too), even an end of a pair, sends to
any unix datagram socket that it can name."""

_SOL_SOCKET, _SOL_TCP = 1, 6
_ATTACH_FILTERS: Final = (26, 50, 51, 52)
"""SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF and _EBPF: they load programs into the kernel."""
_TCP_ULP: Final = 31
"""Attaches an upper-layer protocol, such as kernel TLS: attack surface that no tool needs."""

_SOL_IP, _SOL_IPV6 = 0, 41
_OF_IP: Final = (1,)
"""IP_TOS, which node sets on every connection: a mark of packets that never leave the network namespace."""
_OF_IPV6: Final = (26, 67)
"""IPV6_V6ONLY, without which Java opens no socket, and IPV6_TCLASS, the same as IP_TOS."""

_NO_OPTION: Final = errno(ENOPROTOOPT)
_NO_FAMILY: Final = errno(EAFNOSUPPORT)

_FASTOPEN: Final = 0x20000000
"""MSG_FASTOPEN connects while sending, and Landlock only checks connect()."""

_IS_CONNECTED_TYPE: Final = IsOneOf(1, _CONNECTED_TYPES, mask=_TYPE)

_CONNECTED_PAIR: Final[Mapping[str, Rule]] = {
    "socketpair": Choice(IsOneOf(0, (_UNIX,)), _only_if(_IS_CONNECTED_TYPE), REFUSED),
    # The fifth argument points to an address; NULL sends to the connected peer.
    "sendto": Choice(HasFlag(3, _FASTOPEN), REFUSED, _only_if(IsOneOf(4, (0,), is_wide=True))),
    "setsockopt": Choice(
        IsOneOf(1, (_SOL_SOCKET,)),
        _unless(IsOneOf(2, _ATTACH_FILTERS), _NO_OPTION),
        Choice(IsOneOf(1, (_SOL_TCP,)), _unless(IsOneOf(2, (_TCP_ULP,)), _NO_OPTION), _NO_OPTION),
    ),
}

_SENDMSG: Final[Mapping[str, Rule]] = {"sendmsg": _unless(HasFlag(2, _FASTOPEN))}

_CONNECT: Final[Mapping[str, Rule]] = {
    # TCP only: Landlock has no rules for UDP ports, and datagrams over a shared loopback would connect two
    # calls. Protocol 0 or 6 only: MPTCP, SCTP and SMC are streams too, and not covered by Landlock's rules.
    "socket": Choice(
        IsOneOf(0, (_INET, _INET6)),
        Choice(IsOneOf(1, (_STREAM,), mask=_TYPE), _only_if(IsOneOf(2, (0, 6))), REFUSED),
        _NO_FAMILY,
    ),
    "connect": ALLOW,
    "setsockopt": Choice(
        IsOneOf(1, (_SOL_IP,)),
        _only_if(IsOneOf(2, _OF_IP), _NO_OPTION),
        Choice(
            IsOneOf(1, (_SOL_IPV6,)),
            _only_if(IsOneOf(2, _OF_IPV6), _NO_OPTION),
            _CONNECTED_PAIR["setsockopt"],
        ),
    ),
}


def _with_unix_sockets(rules: Mapping[str, Rule]) -> dict[str, Rule]:
    """The rules with unix sockets, for a program in a network namespace of its own with a supervisor.

    The path of connect(2) is in memory, where BPF cannot read it, and a socket of the host may lie in a
    granted folder. So a supervisor makes each connection (`guest/supervisor`); without one the call fails
    with ENOSYS. bind(2) needs none: Landlock decides where a socket may be made. Listening on TCP reaches
    nobody: Landlock allows no port for bind, and the namespace is the program's own.
    """
    return {
        **rules,
        **dict.fromkeys(("bind", "listen", "accept", "accept4"), ALLOW),
        "socket": Choice(IsOneOf(0, (_UNIX,)), _only_if(_IS_CONNECTED_TYPE), rules.get("socket", _NO_FAMILY)),
        "connect": NOTIFY,
    }


# --- refused at the standard level ---------------------------------------------------------------

_OTHER_PROCESSES: Final = """
    ptrace process_vm_readv process_vm_writev process_madvise process_mrelease kcmp pidfd_getfd
    migrate_pages move_pages
"""
"""Read, write or control another process, or take its descriptors."""

_KERNEL_SURFACE: Final = """
    bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register
    keyctl add_key request_key modify_ldt lookup_dcookie nfsservctl uselib _sysctl
    kexec_load kexec_file_load init_module finit_module delete_module create_module
    get_kernel_syms query_module iopl ioperm
"""
"""Where most kernel exploits were found, and what only administrators use. io_uring executes operations that
no filter sees; keyrings belong to the user, not to the process."""

_MOUNTS_AND_NAMESPACES: Final = """
    mount umount2 pivot_root chroot move_mount open_tree open_tree_attr fsopen fsconfig fsmount fspick
    mount_setattr unshare setns
"""
"""The root, the mounts and the namespaces are the sandbox itself."""

_FILES_BY_HANDLE: Final = """
    open_by_handle_at name_to_handle_at fanotify_init fanotify_mark
"""
"""A file opened by handle, or reported by fanotify, need not lie below a granted path."""

_MACHINE_WIDE: Final = """
    reboot swapon swapoff sethostname setdomainname acct quotactl quotactl_fd syslog vhangup
    settimeofday clock_settime adjtimex clock_adjtime
"""
"""Clocks, host names, quotas and logs that all processes share."""

_SANDBOX_CONTROLS: Final = """
    seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self lsm_set_self_attr
"""
"""No layer is added or changed: a seccomp filter with a user-space supervisor could fake results for what the
worker starts, and an open Landlock ruleset takes further paths."""

_IPC_AND_MEMFD: Final = """
    shmget shmat shmctl shmdt msgget msgsnd msgrcv msgctl semget semop semtimedop semctl
    mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr
    memfd_create memfd_secret execveat
"""
"""Memory and messages that outlive the worker and reach the next one in a shared IPC namespace, and memory
that no rlimit counts. A memfd can also be executed without a path, by execveat."""

_STANDARD_DENIED: Final = (
    _OTHER_PROCESSES,
    _KERNEL_SURFACE,
    _MOUNTS_AND_NAMESPACES,
    _FILES_BY_HANDLE,
    _MACHINE_WIDE,
    _SANDBOX_CONTROLS,
    _IPC_AND_MEMFD,
)

_STANDARD_RULES: Final[Mapping[str, Rule]] = {
    **_PROCESSES,
    **_OWN_PRIORITY_AND_LIMITS,
    **_OWN_SCHEDULING,
    **_MODES,
    **_MODES_OF_NODES,
    **_FALLOCATE,
    "fcntl": _unless(IsOneOf(1, _FCNTL_SIGNALS)),
    "ioctl": _unless(IsOneOf(1, _IOCTL_HOSTILE)),
    "prctl": _unless(IsOneOf(0, _PRCTL_HOSTILE)),
    # Packet, vsock, AF_ALG and the rest: no network namespace covers vsock, and each family is attack
    # surface.
    "socket": _only_if(IsOneOf(0, (_UNIX, _INET, _INET6, _NETLINK)), _NO_FAMILY),
    # ADDR_NO_RANDOMIZE and READ_IMPLIES_EXEC weaken whatever runs next. 0 is plain Linux, 0xFFFFFFFF queries.
    "personality": _only_if(IsOneOf(0, (0, 0xFFFFFFFF))),
}

# --- the profiles --------------------------------------------------------------------------------

_EVERYWHERE: Final = (_COMPUTE, _DESCRIPTORS, _SIGNALS_AND_TIME, _PROCESS_INFO, _SOCKETPAIR)


def for_level(
    level: Isolation,
    *,
    may_spawn: bool = False,
    may_connect: bool = False,
    is_suspendable: bool = False,
    is_supervised: bool = False,
) -> Profile:
    """The profile of a level on this machine; the `may_…` options count only at strict.

    A suspendable program cannot resume itself after SIGSTOP. A supervised one has unix sockets, at strict.
    """
    architecture = this_machine()
    if architecture is None:
        raise ValueError("there is no system call filter for this kind of processor")
    if level is Isolation.STANDARD:
        profile = standard(architecture)
    elif level is Isolation.STRICT:
        profile = strict(
            architecture, may_spawn=may_spawn, may_connect=may_connect, is_supervised=is_supervised
        )
    else:
        profile = restricted(architecture)
    return suspendable(profile) if is_suspendable else profile


def templated(profile: Profile) -> Profile:
    """A profile for a template and the workers that are forked from it."""
    rules = _traced(profile.rules, profile.default)
    return _profile(profile.architecture, rules, default=profile.default)


def suspendable(profile: Profile) -> Profile:
    """A profile without the calls that could resume a suspended program."""
    rules = _without_sigcont(profile.rules)
    return _profile(profile.architecture, rules, default=profile.default)


def standard(architecture: Architecture) -> Profile:
    """Denylist: everything except what reaches beyond the process or outlives it."""
    rules = {**_all(_STANDARD_DENIED, REFUSED), **_STANDARD_RULES}
    return _profile(architecture, rules, default=ALLOW)


def strict(
    architecture: Architecture, *, may_spawn: bool, may_connect: bool, is_supervised: bool = False
) -> Profile:
    """Allowlist: files, threads, and where granted processes and TCP connections."""
    rules = {
        **_all((*_EVERYWHERE, _READ_FILES, _WRITE_FILES), ALLOW),
        **_all((_EXTENDED_ATTRIBUTES,), errno(EOPNOTSUPP)),
        **_OWN_CONTROLS,
        **_LOCKS,
        **_OWN_PRIORITY_AND_LIMITS,
        **_MODES,
        **_RENAMES,
        **_FALLOCATE,
        **_CONNECTED_PAIR,
        **_SENDMSG,
        **(_PROCESSES if may_spawn else _THREADS),
        **(_CONNECT if may_connect else {}),
    }
    if is_supervised:
        rules = _with_unix_sockets(rules)
    return _profile(architecture, rules, default=REFUSED)


def restricted(architecture: Architecture) -> Profile:
    """Allowlist: threads and reading; no writing, no processes, no sockets but a pair."""
    rules = {
        **_all((*_EVERYWHERE, _READ_FILES), ALLOW),
        **_OPEN_TO_READ,
        **_OWN_CONTROLS,
        **_OWN_PRIORITY_AND_LIMITS,
        **_READ_OWN_LIMITS,
        **_THREADS,
        **_CONNECTED_PAIR,
    }
    return _profile(architecture, rules, default=REFUSED)


def _profile(architecture: Architecture, rules: Mapping[str, Rule], *, default: Action) -> Profile:
    """Keep the rules of calls that exist on this architecture."""
    present = {name: rule for name, rule in rules.items() if name in architecture.numbers}
    return Profile(architecture=architecture, rules=present, default=default)


# --- supervision and observation ------------------------------------------------------------------

_OBSERVED: Final = """
    open read - 0 1            openat read 0 1 2          creat write - 0 -
    stat look - 0 -            lstat look - 0 -           newfstatat look 0 1 -
    statx look 0 1 -           access look - 0 -          faccessat look 0 1 -
    faccessat2 look 0 1 -      readlink look - 0 -        readlinkat look 0 1 -
    statfs look - 0 -          chdir look - 0 -           execve run - 0 -
    mkdir write - 0 -          mkdirat write 0 1 -        rmdir write - 0 -
    unlink write - 0 -         unlinkat write 0 1 -       truncate write - 0 -
    rename write - 1 -         renameat write 2 3 -       renameat2 write 2 3 -
    link write - 1 -           linkat write 2 3 -         symlink write - 1 -
    symlinkat write 1 2 -      chmod write - 0 -          fchmodat write 0 1 -
    connect connect - 1 -
"""
"""Name, what it does, and which arguments are the folder's descriptor, the path or address, and the flags."""
_FIELDS: Final = 5
"""Words of each row."""


def observed(profile: Profile) -> Profile:
    """A profile that also reports the calls with a name in them; not those that it refuses."""
    rules = {name: _reported(rule) if name in _rows() else rule for name, rule in profile.rules.items()}
    return _profile(profile.architecture, rules, default=profile.default)


def _reported(rule: Rule) -> Rule:
    if isinstance(rule, Action):
        return NOTIFY if rule == ALLOW else rule
    return Choice(rule.test, _reported(rule.then), _reported(rule.otherwise))


def supervision(profile: Profile, shown: Iterable[str] | None = None) -> dict[str, Any]:
    """What the supervisor of a program has to know about the calls that its filter reports.

    With `shown`, the program is observed: names are noted, but not those of files below these folders,
    because a runtime names thousands of them.
    """
    numbers = profile.architecture.numbers
    return {
        "calls": {str(numbers[name]): places for name, places in _rows().items() if name in numbers},
        "shown": None if shown is None else list(shown),
    }


@functools.cache
def _rows() -> Mapping[str, list[str | int]]:
    words = _OBSERVED.split()
    rows = (words[start : start + _FIELDS] for start in range(0, len(words), _FIELDS))
    return {
        name: [what, *(-1 if word == "-" else int(word) for word in places)] for name, what, *places in rows
    }
