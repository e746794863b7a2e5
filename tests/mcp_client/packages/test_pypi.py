"""Python packages of servers, from an index on loopback: wheels alone, pinned by hash."""

import compileall
import ensurepip
import importlib.util
import json
import os
import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from tests.config.projects import accept
from tests.mcp_client.packages.registries import (
    NOW,
    OLD,
    SERVER_PY,
    Registry,
    add,
    greeted,
    invoke,
    project,
    registry,
    tree,
)
from tests.mcp_client.servers import listing

__all__ = ["project", "registry"]

pytestmark = [pytest.mark.spec("MCP-3"), pytest.mark.usefixtures("compiled_pip")]

BUNDLED = Path(ensurepip.__file__).resolve().parent / "_bundled"


@pytest.fixture(scope="module")
def unpacked_pip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """pip of the wheel that Python brings, compiled once: from the wheel, each run would compile all of it."""
    folder = tmp_path_factory.mktemp("pip")
    for wheel in BUNDLED.glob("pip-*.whl"):
        zipfile.ZipFile(wheel).extractall(folder)
    compileall.compile_dir(folder, quiet=2)
    for above in (folder, *folder.parents[:3]):
        above.chmod(0o755)
    return folder


@pytest.fixture
def compiled_pip(unpacked_pip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment with pip, whether this one has it or not."""
    if importlib.util.find_spec("pip") is None:
        monkeypatch.setattr(sys, "path", [*sys.path, str(unpacked_pip)])


def upload(registry: Registry, version: str, when: str, **files: str) -> None:
    files = {"hello.py": SERVER_PY, **files}
    registry.upload("hello_mcp", version, files, program="hello-mcp = hello:main", when=when)


def test_uvx_is_resolved_once_and_its_program_runs_from_the_state(registry: Registry, project: Path) -> None:
    upload(registry, "1.0.0", OLD)
    upload(registry, "2.0.0", NOW)
    upload(registry, "2.1.0", NOW)
    registry.upload_source("hello_mcp", "0.9.0")
    done = add(project, "--", "uvx", "hello-mcp", "ada")
    assert done.exit_code == 0, done.output
    # All young versions in one step.
    assert "! hello-mcp==2.1.0 is younger than 7 days and is passed over" in done.stderr
    assert "1 package, hello-mcp 1.0.0" in done.stdout
    accept(project)
    asked = len(registry.asked)
    assert greeted(project) == "hello ada"
    assert len(registry.asked) == asked  # the server reaches no index, and needs none
    assert registry.credentials == set()  # the configured address holds a password
    assert list(listing(project, "hello")["packages"]["tree"]) == ["hello-mcp"]
    assert "is up to date" in invoke(project, "update", "hello").output
    # Another wheel under the same version: it is not installed.
    registry.archives["/files/hello_mcp-1.0.0-py3-none-any.whl"] += b" "
    (tree(project) / "pyvenv.cfg").unlink()
    refused = add(project, "--refresh")
    assert (refused.exit_code, "DO NOT MATCH THE HASHES" in refused.stderr) == (1, True), refused.output


def test_what_was_observed_is_added_for_an_hour(registry: Registry, project: Path) -> None:
    upload(registry, "1.0.0", OLD)
    upload(registry, "2.0.0a1", OLD)
    uvx = ("--", "uvx", "--prerelease=allow", "hello-mcp")
    seen = add(project, "--observe", "--call", "greet={}", *uvx, "ada")
    assert (seen.exit_code, "hello-mcp 2.0.0a1" in seen.stdout) == (0, True), seen.output
    upload(registry, "3.0.0", OLD)
    asked = len(registry.asked)
    done = add(project, *uvx, "bob")
    assert (done.exit_code, "hello-mcp 2.0.0a1" in done.stdout) == (0, True), done.output
    assert len(registry.asked) == asked
    (observed,) = (project.parent / "state" / "packages").glob("*.observed")
    os.utime(observed, (0, 0))
    assert "hello-mcp 3.0.0" in add(project, *uvx, "bob").stdout
    refused = add(project, "--", "uvx", "--python", "3.99", "hello-mcp")
    assert "need Python 3.99, which is not there" in refused.stderr


def test_a_wheel_that_would_write_outside_is_refused(
    registry: Registry, project: Path, unpacked_pip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By pip of the wheel that Python brings, where an environment has none."""
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one != str(unpacked_pip)])
    upload(registry, "1.0.0", OLD, **{"../../../../../escaped.py": ""})
    refused = add(project, "--allow-new", "--", "uvx", "hello-mcp")
    assert (refused.exit_code, "outside" in refused.stderr) == (1, True), refused.output
    assert "escaped.py" not in {path.name for path in project.parent.rglob("*")}


BACKEND = """
import json, os, runpy, zipfile
def get_requires_for_build_wheel(settings=None):
    return ["tinyextra"]
def build_wheel(folder, settings=None, metadata=None):
    import tinyextra
    print("talk on standard output")
    found = runpy.run_path("setup.py")["found"]
    name, info = os.environ.get("NAME", NAME), "greeting-1.2.0.dist-info/"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        def put(path, text):
            wheel.writestr(zipfile.ZipInfo(path), text)
        put("greeting.py", "found = " + repr(found))
        put(info + "METADATA", "Metadata-Version: 2.1\\nName: greeting\\nVersion: 1.2.0\\n")
        put(info + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        put(info + "RECORD", "")
    return name
"""
"""A build backend, for the built wheel named NAME."""
GREETING = "greeting-1.2.0-py3-none-any.whl"
TRIES = """
import os, urllib.request
found = {}
def tried(name, action):
    try:
        action()
        found[name] = "worked"
    except OSError:
        found[name] = "denied"
tried("own folder", lambda: open("../own", "w"))
tried("network", lambda: urllib.request.urlopen(INDEX, timeout=5))
tried("home", lambda: os.listdir(HOME))
tried("write", lambda: open(ELSEWHERE + "/escaped", "w"))
tried("staging", lambda: os.listdir("../../../wheels"))
"""


def upload_greeting(
    registry: Registry, project: Path, built: str = GREETING, needs: str = "tinybuild"
) -> None:
    """A server whose dependency is published as source only, and would build a wheel of this name."""
    upload(registry, "1.0.0", OLD)
    files = {"hello.py": SERVER_PY}
    registry.upload("hello_mcp", "2.0.0", files, program="hello-mcp = hello:main", needs="greeting>=1.1")
    values = {
        "INDEX": f"{registry.url}/simple/greeting/",
        "HOME": str(Path.home()),
        "ELSEWHERE": str(project),
    }
    setup = "".join(f"{key} = {value!r}\n" for key, value in values.items()) + TRIES
    system = f"[build-system]\nrequires = {json.dumps([needs])}\nbuild-backend = 'tinybuild'\n"
    registry.upload_source("greeting", "1.2.0", {"setup.py": setup, "pyproject.toml": system})
    registry.upload("tinybuild", "1.0.0", {"tinybuild.py": f"NAME = {built!r}\n{BACKEND}"})
    registry.upload("tinyextra", "1.0.0", {"tinyextra.py": ""})
    registry.upload("tinyextra", "2.0.0", {"tinyextra.py": ""}, when=NOW)


ALLOWED = ("--allow-scripts", "Greeting", "--", "uvx", "hello-mcp", "ada")


def test_a_package_that_is_source_only_is_built_confined_if_a_person_names_it(
    registry: Registry, project: Path
) -> None:
    upload_greeting(registry, project)
    refused = add(project, "--", "uvx", "hello-mcp", "ada")
    assert refused.exit_code == 1
    assert "'greeting' 1.2.0: is published as source only" in refused.stderr
    assert "--allow-scripts greeting builds it, confined" in refused.stderr
    assert "/files/greeting-1.2.0.tar.gz" not in registry.asked
    older = add(project, "--observe", "--", "uvx", "hello-mcp==1.0.0", "ada")
    assert (older.exit_code, "hello-mcp 1.0.0" in older.stdout) == (0, True), older.output
    shutil.rmtree(project.parent / "state" / "packages")
    done = add(project, *ALLOWED)
    assert (done.exit_code, "2 packages, hello-mcp 2.0.0" in done.stdout) == (0, True), done.output
    (module,) = tree(project).rglob("greeting.py")
    tries = {"network": "denied", "home": "denied", "write": "denied", "staging": "denied"}
    assert module.read_text() == f"found = { ({'own folder': 'worked'} | tries)!r}"
    accept(project)
    assert greeted(project) == "hello ada"
    pinned = listing(project, "hello")["packages"]
    entry = pinned["tree"]["greeting"]
    assert (sorted(entry), pinned["scripts"]) == (["build", "integrity", "source", "version"], ["greeting"])
    assert {name: one["version"] for name, one in entry["build"].items()} == {
        "tinybuild": "1.0.0",
        "tinyextra": "1.0.0",
    }
    # Built again elsewhere: the same wheel, or none. `update` tells the new hash.
    shutil.rmtree(tree(project))
    assert add(project, "--refresh").exit_code == 0
    shutil.rmtree(tree(project))
    file = project / ".agent" / "hello.mcp.json"
    pins = file.read_text()
    file.write_text(pins.replace(entry["integrity"], entry["source"], 1))
    accept(project)
    refused = add(project, "--refresh")
    assert (refused.exit_code, "gives another wheel than was pinned" in refused.stderr) == (1, True), (
        refused.output
    )
    file.write_text(pins)
    accept(project)
    upload_greeting(registry, Path())  # it can write there, and says so in its wheel
    refused = add(project, "--refresh")
    assert (refused.exit_code, "another source archive than was pinned" in refused.stderr) == (1, True)
    changed = invoke(project, "update", "hello")
    assert "pypi:greeting 1.2.0 has another integrity hash under the same version" in changed.stdout, (
        changed.output
    )
    assert "tiny" not in changed.stdout  # what it was built with is the same


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"built": "hello_mcp-9.0-py3-none-any.whl"}, "which is not its version 1.2.0"),
        ({"needs": "tinybuild @ http://127.0.0.1:9/x.whl"}, "which is no package of a registry"),
    ],
)
def test_a_build_cannot_stand_in_for_another_package_or_choose_its_registry(
    registry: Registry, project: Path, changed: dict[str, str], reason: str
) -> None:
    upload_greeting(registry, project, **changed)
    refused = add(project, *ALLOWED)
    assert (refused.exit_code, reason in refused.stderr) == (1, True), refused.output


def test_a_server_whose_newest_version_is_source_only_is_not_replaced_by_an_older_one(
    registry: Registry, project: Path
) -> None:
    upload(registry, "1.0.0", OLD)
    registry.upload_source("hello_mcp", "1.5.0")
    refused = add(project, "--", "uvx", "hello-mcp", "ada")
    assert (refused.exit_code, "'hello-mcp' 1.5.0: is published as source only" in refused.stderr) == (
        1,
        True,
    ), refused.output
    strange = add(project, "--allow-scripts", "other", "--", "uvx", "hello-mcp==1.0.0", "ada")
    assert (strange.exit_code, "'other' is no package of this server" in strange.stderr) == (1, True)
