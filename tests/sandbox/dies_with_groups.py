"""Makes a group for a process of its own and says where; then waits to be killed."""

import os
import signal
import subprocess
import sys

from tests.sandbox.test_cgroups import BOUNDS, without_memory_controller
from toolkeep.sandbox.cgroups import Cgroups

if __name__ == "__main__":
    if sys.argv[1] == "bare":
        without_memory_controller()
    groups = Cgroups()
    with subprocess.Popen(["/bin/sleep", "60"]) as sleeper:
        group = groups.add(os.pidfd_open(sleeper.pid), BOUNDS)
        sleeper.kill()
        print(group.folder, flush=True)
        signal.pause()
