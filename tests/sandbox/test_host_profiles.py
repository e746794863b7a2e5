"""Profiles for other systems: enough for workers (shown in `test_container_check`), and no wider than that."""

import pytest

from toolkeep.sandbox.host_profiles import apparmor_profile, seccomp_profile
from toolkeep.sandbox.syscalls import ARCHITECTURES

DANGEROUS = [
    "bpf",
    "kexec_load",
    "kexec_file_load",
    "init_module",
    "finit_module",
    "delete_module",
    "perf_event_open",
    "reboot",
    "swapon",
    "swapoff",
    "add_key",
    "keyctl",
    "request_key",
    "open_by_handle_at",
    "userfaultfd",
    "io_uring_setup",
    "acct",
    "settimeofday",
    "clock_settime",
    "iopl",
    "ioperm",
    "quotactl",
    "syslog",
    "lookup_dcookie",
    "fspick",
]


def test_the_seccomp_profile_denies_what_container_runtimes_deny() -> None:
    allowed, denied = seccomp_profile()["syscalls"]
    assert (allowed["action"], denied["action"], denied["errnoRet"]) == (
        "SCMP_ACT_ALLOW",
        "SCMP_ACT_ERRNO",
        1,
    )
    assert set(DANGEROUS) <= set(denied["names"])
    assert not set(allowed["names"]) & set(denied["names"])


def test_what_the_seccomp_profile_does_not_name_is_denied() -> None:
    profile = seccomp_profile()
    assert (profile["defaultAction"], profile["defaultErrnoRet"]) == ("SCMP_ACT_ERRNO", 38)
    known = {name for machine in ARCHITECTURES for name in machine.numbers}
    assert {name for rule in profile["syscalls"] for name in rule["names"]} == known


def test_the_apparmor_profile_is_attached_to_one_program() -> None:
    lines = apparmor_profile("/home/ada/my tools/[1]/bin/toolkeep").splitlines()
    assert r'profile toolkeep "/home/ada/my tools/\[1\]/bin/toolkeep" flags=(unconfined) {' in lines
    assert "  userns," in lines


@pytest.mark.parametrize("program", ["toolkeep", '/a"b', "/a\n/bin/**"])
def test_no_path_adds_a_rule_to_the_apparmor_profile(program: str) -> None:
    with pytest.raises(ValueError, match="no AppArmor profile can name"):
        apparmor_profile(program)
