"""Sdist and wheel, built from a clean copy of what git knows, and the wheel used in an environment of its own."""

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.cli.test_demo import asked, demo
from tests.release.test_sbom import installed

ROOT = Path(__file__).resolve().parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NAME = f"toolkeep-{PROJECT['version']}"
INFO = f"{NAME}.dist-info"

GUARDED_CALL = """
import json, toolkeep
from toolkeep import open_keep, tool

@tool(side_effects=["None"])
def price(title: str, copies: int) -> int:
    \"\"\"Tell what copies of a book cost, in cents.

    Args:
        title: The title.
        copies: How many.
    \"\"\"
    return 1200 * copies

with open_keep() as keep:
    keep.register(price)
    refused = keep.call_sync("price", '{"titel": "Dune", "copies": 3}')
    result = keep.call_sync("price", '{"title": "Dune", "copies": 3}')
print(json.dumps([toolkeep.__file__, toolkeep.__version__, refused.code, result.status, result.value]))
"""


class Built(NamedTuple):
    """What `scripts/build` made in a clean copy."""

    tree: Path
    sdist: Path
    wheel: Path
    bill: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    for name in known_to_git():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)
    subprocess.run([sys.executable, tree / "scripts" / "build", out], check=True, stdout=subprocess.DEVNULL)
    made = {path.name: path for path in out.iterdir() if path.name != ".gitignore"}
    assert sorted(made) == [f"{NAME}-py3-none-any.whl", f"{NAME}.cdx.json", f"{NAME}.tar.gz"]
    return Built(tree, made[f"{NAME}.tar.gz"], made[f"{NAME}-py3-none-any.whl"], made[f"{NAME}.cdx.json"])


def known_to_git() -> list[str]:
    """The files of the tree that are, or are about to be, committed."""
    words = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(words, cwd=ROOT, capture_output=True, check=True).stdout
    return [name for name in os.fsdecode(found).split("\0") if name and (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def environment(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel and what its metadata asks for, and nothing else."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home)
    (packages,) = home.glob("lib/python*/site-packages")
    for name in installed():
        for entry in top_entries(name):
            if not (packages / entry.name).is_symlink():
                (packages / entry.name).symlink_to(entry)
    python = home / "bin" / "python"
    uv = shutil.which("uv")
    install: list[Any] = [uv, "pip", "install", "--offline"] if uv else [sys.executable, "-m", "pip"]
    install += ["--python", python] if uv else ["--python", python, "install", "--no-index"]
    subprocess.run([*install, "--quiet", "--no-deps", built.wheel], check=True)
    return home


def top_entries(name: str) -> Iterator[Path]:
    """The files and folders of an installed distribution, at the top of where it is installed."""
    files = importlib.metadata.files(name)
    assert files
    for first in {file.parts[0] for file in files} - {"..", "__pycache__"}:
        yield Path(str(importlib.metadata.distribution(name).locate_file(first)))


def run(environment: Path, *words: str, at: Path) -> str:
    variables = {"HOME": str(at), "PATH": os.environ["PATH"], "NO_COLOR": "1", "LC_ALL": "C.UTF-8"}
    program = environment / "bin" / words[0]
    done = subprocess.run(
        [program, *words[1:]], cwd=at, env=variables, capture_output=True, check=False, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def files_of(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


def sources(tree: Path) -> set[str]:
    home = tree / "src"
    return {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}


def test_the_wheel_holds_the_package_with_its_data_and_licenses_and_nothing_else(built: Built) -> None:
    about = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "licenses/NOTICE"}
    assert files_of(built.wheel) == sources(built.tree) | {f"{INFO}/{name}" for name in about}


@pytest.mark.parametrize(
    "name",
    [
        "toolkeep/py.typed",
        "toolkeep/server/web/templates/base.html",
        "toolkeep/server/web/static/page.js",
        "toolkeep/server/web/static/vendor/LICENSES.txt",
        "toolkeep/storage/sql/migrations/versions/__init__.py",
        "toolkeep/sandbox/guest/start.py",
        "toolkeep/escape_suite/attempts/__init__.py",
    ],
)
def test_the_wheel_holds_what_is_found_by_its_path_at_run_time(built: Built, name: str) -> None:
    assert name in files_of(built.wheel)


def test_neither_holds_tests_caches_or_state(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = [*archive.getnames(), *files_of(built.wheel)]
    unwanted = ("__pycache__", ".pyc", "/tests/", "/bench/", ".venv", ".db", ".git")
    assert [name for name in names if any(part in f"{name}/" for part in unwanted)] == []


def test_the_sdist_holds_what_a_wheel_is_built_from(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {
            name.removeprefix(f"{NAME}/") for name in archive.getnames() if archive.getmember(name).isfile()
        }
    top = {name for name in names if not name.startswith("src/")}
    assert {
        "LICENSE",
        "NOTICE",
        "README.md",
        "CHANGELOG.md",
        "SECURITY.md",
        "pyproject.toml",
        "PKG-INFO",
    } <= top
    assert {name.removeprefix("src/") for name in names - top} == sources(built.tree)


def test_the_wheel_from_the_sdist_is_what_one_from_the_tree_would_be(built: Built) -> None:
    """Byte by byte: the sdist leaves nothing of the package out."""
    with zipfile.ZipFile(built.wheel) as archive:
        package = {name: archive.read(name) for name in archive.namelist() if name.startswith("toolkeep/")}
    packaged = {name: data for name, data in package.items() if not name.endswith("/")}
    assert packaged == {name: (built.tree / "src" / name).read_bytes() for name in sources(built.tree)}


def test_the_metadata_says_what_pyproject_says(environment: Path, built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        text = archive.read(f"{INFO}/METADATA").decode()
    for line in (
        f"Version: {PROJECT['version']}",
        "License-Expression: Apache-2.0",
        "License-File: NOTICE",
        "Classifier: Typing :: Typed",
        "Description-Content-Type: text/markdown",
        *(f"Project-URL: {name}, {url}" for name, url in PROJECT["urls"].items()),
    ):
        assert line in text.split("\n")


def test_the_command_of_the_wheel_says_its_version(environment: Path, tmp_path: Path) -> None:
    assert run(environment, "toolkeep", "--version", at=tmp_path) == f"toolkeep {PROJECT['version']}\n"


def test_a_guarded_call_works_from_the_wheel(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(GUARDED_CALL)
    file, version, *rest = json.loads(run(environment, "python", "shop.py", at=tmp_path))
    assert environment in Path(file).parents
    assert (version, rest) == (PROJECT["version"], ["ACODE-TSR-003", "ok", 3600])
    assert ": intact\n" in run(environment, "toolkeep", "audit", "verify", at=tmp_path)


@pytest.mark.spec("CLI-1")
def test_the_wheel_alone_gives_the_demo_with_its_page(environment: Path, tmp_path: Path) -> None:
    with demo(tmp_path / "home", str(environment / "bin" / "toolkeep")) as running:
        assert "toolkeep token link" in asked(running.said["link"].partition("#")[0])
    assert running.process.returncode == 0


def test_the_backend_that_is_pinned_is_one_that_the_package_asks_for() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (wanted,) = map(Requirement, settings["build-system"]["requires"])
    pinned = (ROOT / "requirements" / "build.txt").read_text(encoding="utf-8").split()[0]
    assert wanted.specifier.contains(Version(pinned.removeprefix("uv-build==")))


def test_the_version_stands_in_one_place() -> None:
    import toolkeep

    told = "the environment is older than pyproject.toml: remove .venv, and run scripts/test"
    assert toolkeep.__version__ == PROJECT["version"], told
    assert f'"{PROJECT["version"]}"' not in (ROOT / "src" / "toolkeep" / "__init__.py").read_text(
        encoding="utf-8"
    )
