"""Runs a few failed tests of a whole run once more, alone: a busy machine may have failed them.

`python -m tests.second_chance CACHE SECONDS` takes the cache of the run and ends with 0 only if each of them then
passed in that time.
"""

import json
import subprocess
import sys
from pathlib import Path

AT_MOST = 10
"""More failures than this have another reason than a busy machine."""


def failed_in(cache: Path) -> list[str]:
    """The ids of the tests, and of the files that could not be collected, that failed last."""
    kept = cache / "v" / "cache" / "lastfailed"
    return sorted(json.loads(kept.read_text(encoding="utf-8"))) if kept.is_file() else []


def is_for_tests(failed: list[str]) -> bool:
    """Whether these get a second chance: a few tests, and no file that could not be collected."""
    return 0 < len(failed) <= AT_MOST and all("::" in name for name in failed)


def run_again(cache: Path, seconds: float, folder: Path) -> bool:
    """Whether each of them passes now."""
    failed = failed_in(cache)
    if not is_for_tests(failed):
        print(f"no second chance: {len(failed)} failed, which is not 1 to {AT_MOST} tests")
        return False
    print(f"\nonce more, alone, what failed beside other tests: {len(failed)}", flush=True)
    words = ("-n0", "--last-failed", "--last-failed-no-failures=none", "-o", f"cache_dir={cache}")
    pytest = (sys.executable, "-m", "pytest", *words, f"--basetemp={cache / 'again'}")
    # An interrupt lets fixtures end the programs that they started.
    bounded = ("timeout", "--signal=INT", "--kill-after=20", str(seconds), *pytest)
    is_over = subprocess.run(bounded, cwd=folder, check=False).returncode == 0
    still = failed_in(cache)  # also those that were not run
    for name in failed:
        print(f"failed beside others, {'failed' if name in still else 'passed'} alone: {name}")
    return is_over and not still


if __name__ == "__main__":
    sys.exit(not run_again(Path(sys.argv[1]), float(sys.argv[2]), Path.cwd()))
