"""Runs a command where mounts are shared with copies of the namespace, as on most systems, and says if one came.

shared_mounts.py COMMAND…; started by root.
"""

import subprocess
import sys
from pathlib import Path

from toolkeep.escape_suite.attempts import system

MS_REC_SHARED = 16384 | 1 << 20


def mounts() -> int:
    return len(Path("/proc/self/mountinfo").read_text().splitlines())


if __name__ == "__main__":
    system.unshare(system.CLONE_NEWNS)
    system.call("mount", None, b"/", None, MS_REC_SHARED, None)
    before = mounts()
    with subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE) as process:
        process.wait()
    print("alone" if mounts() == before else "shared")
