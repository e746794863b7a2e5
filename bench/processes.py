"""A hundred commands at once: does every one of them answer, and how long do all take together?

    .venv/bin/python bench/processes.py
    .venv/bin/python bench/processes.py --processes 10

Each process is `toolkeep validate` with a call that is valid. The exit status is 1 if one of them fails, or
if all together take longer than ten seconds for a hundred. That is a time by the clock, so it needs a quiet
machine; the processor time of one process is printed beside it.
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from measures.home import empty_home
from measures.startup import compile_bytecode

COMMAND = (sys.executable, "-m", "toolkeep", "validate", "read_file", '{"path": "/test.txt"}')
SECONDS_FOR_HUNDRED = 10.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=100, help="how many at once")
    count = parser.parse_args().processes
    compile_bytecode()
    with empty_home() as home:
        subprocess.run(COMMAND, cwd=home, check=True, capture_output=True)  # reads everything from disk once
        seconds, failed, processor_s, peak_kib = _run(count, home)
    allowed_s = SECONDS_FOR_HUNDRED * count / 100
    print(f"{count} at once on {os.cpu_count()} cores: {seconds:.2f} s ({allowed_s:g} s allowed)")
    print(f"each: {processor_s / count * 1e3:.0f} ms of processor time, at most {peak_kib / 1024:.0f} MiB")
    print(f"succeeded: {count - failed} of {count}")
    return 1 if failed or seconds > allowed_s else 0


def _run(count: int, folder: Path) -> tuple[float, int, float, int]:
    """Seconds by the clock, how many failed, processor time and peak memory of all of them."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    started = [subprocess.Popen(COMMAND, cwd=folder, stdout=subprocess.DEVNULL) for _ in range(count)]
    failed = sum(process.wait() != 0 for process in started)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, failed, processor_s, after.ru_maxrss


if __name__ == "__main__":
    sys.exit(main())
