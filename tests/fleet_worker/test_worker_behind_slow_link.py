"""A worker behind a link with 50 ms of delay each way and 1 % of loss, which is cut during a call and healed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.spec("SCL-4")

IN_A_NETWORK_OF_ITS_OWN = (
    'mkdir -p /run/netns && mount -t tmpfs none /run/netns && ip link set lo up && exec "$@"'
)


@pytest.mark.skipif(
    os.getuid() != 0 or not os.access("/dev/net/tun", os.W_OK), reason="needs root and /dev/net/tun"
)
def test_calls_over_a_slow_and_lossy_link_run_once_and_end_with_their_lease(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    command = [sys.executable, "-m", "tests.fleet.slow_round", str(tmp_path)]
    inside = ["unshare", "--net", "--mount", "sh", "-c", IN_A_NETWORK_OF_ITS_OWN, "sh", *command]
    done = subprocess.run(inside, cwd=ROOT, check=True, stdout=subprocess.PIPE, timeout=240)
    lines = [f"line-{one}" for one in range(20)]
    assert json.loads(done.stdout) == {
        "doubled": [2 * one for one in range(20)],
        "noted": lines,
        "runs": dict.fromkeys(lines, 1),
        "lost": "ACODE-TSR-040",
        "left": 0,
        "findings": [],
    }
