"""The narrowest cure for a machine that cannot confine tools, by what its kernel says."""

from pathlib import Path
from typing import Any

import pytest

from toolkeep.sandbox.container_check import FLAGS
from toolkeep.sandbox.isolation_cure import (
    ELSEWHERE,
    INSTALL_APPARMOR,
    NAMESPACES,
    REMEDIES,
    MachineFacts,
    cure_for,
    machine_facts,
)
from toolkeep.sandbox.isolation_levels import Mechanism

UBUNTU: dict[str, Any] = {"has_apparmor_restriction": True}


@pytest.mark.spec("SBX-1")
@pytest.mark.parametrize(
    ("facts", "cause", "remedy"),
    [
        (UBUNTU, "AppArmor denies user namespaces", INSTALL_APPARMOR),
        ({"in_container": True}, "the container's profile denies", FLAGS),
        ({"is_filtered": True}, "the container's profile denies", FLAGS),
        ({"in_container": True, **UBUNTU}, "the container's profile denies", "--security-opt apparmor=toolkeep"),
        ({"is_limited_to_none": True, **UBUNTU}, "user.max_user_namespaces is 0", "user.max_user_namespaces=15000"),
        ({"is_root_only": True}, "kernel.unprivileged_userns_clone is 0", "kernel.unprivileged_userns_clone=1"),
        ({"platform": "darwin"}, "isolation needs Linux, and this is macOS", ELSEWHERE),
        ({"platform": "win32"}, "isolation needs Linux, and this is Windows", ELSEWHERE),
        ({}, "this machine gives no ipc-namespace, mount-namespace", REMEDIES[Mechanism.USER_NAMESPACE]),
    ],
)  # fmt: skip
def test_the_cure_is_for_what_stands_in_the_way(facts: dict[str, Any], cause: str, remedy: str) -> None:
    cure = cure_for(sorted(NAMESPACES), MachineFacts(**facts))
    assert cure.cause.startswith(cause)
    assert remedy in cure.remedy
    assert "\n" not in cure.cause + cure.remedy


def test_what_has_nothing_to_do_with_namespaces_has_its_own_cure() -> None:
    cure = cure_for([Mechanism.LANDLOCK], MachineFacts(**UBUNTU))
    assert cure == ("this kernel lacks landlock", REMEDIES[Mechanism.LANDLOCK])


def test_facts_are_read_from_the_kernel(tmp_path: Path) -> None:
    for name, text in {
        "proc/self/status": "Name:\tx\nSeccomp:\t2\n",
        "proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n",
        "proc/sys/kernel/unprivileged_userns_clone": "0\n",
        "proc/sys/user/max_user_namespaces": "0\n",
        "run/.containerenv": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert machine_facts(tmp_path) == MachineFacts(
        in_container=True,
        is_filtered=True,
        has_apparmor_restriction=True,
        is_limited_to_none=True,
        is_root_only=True,
    )
    assert machine_facts(tmp_path / "nothing") == MachineFacts()
