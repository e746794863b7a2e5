"""The trusted set: what this process executes, imports or believes (SBX-6)."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from toolkeep.sandbox import trusted_paths
from toolkeep.sandbox.trusted_paths import INTERPRETER, TrustedPath, TrustedPaths, links_of, of_process

pytestmark = pytest.mark.spec("SBX-6")


def of_another_process(*arguments: str, cwd: Path, **variables: str) -> dict[str, Any]:
    """The set of a Python that is started otherwise."""
    program = (
        "import json; from toolkeep.sandbox.trusted_paths import THIS_PROCESS, search_path;"
        "print(json.dumps({'paths': dict(THIS_PROCESS.host), 'search': search_path()}))"
    )
    done = subprocess.run(
        [sys.executable, *arguments, "-c", program],
        cwd=cwd,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    "path",
    [
        sys.executable,
        INTERPRETER,
        os.__file__,
        trusted_paths.__file__,
        pytest.__file__,
        "/usr/bin/env",
        f"{sys.prefix}/pyvenv.cfg",
    ],
)
def test_the_interpreter_its_environment_packages_and_toolkeep_are_trusted(path: str) -> None:
    assert TrustedPaths().covering(os.path.realpath(path)) is not None


def test_work_is_not_trusted(tmp_path: Path) -> None:
    assert TrustedPaths().covering(str(tmp_path)) is None


def test_what_variables_name_is_trusted_and_what_pythonpath_names_is_work(tmp_path: Path) -> None:
    named = {name: str(tmp_path / name) for name in ("LD_LIBRARY_PATH", "GIT_EXEC_PATH", "SSL_CERT_FILE")}
    found = of_another_process(
        cwd=tmp_path, **named, PYTHONPYCACHEPREFIX=str(tmp_path / "cache"), PYTHONPATH=str(tmp_path / "src")
    )
    assert set(named.values()) | {str(tmp_path / "cache")} <= set(found["paths"])
    assert str(tmp_path / "src") not in found["paths"]


@pytest.mark.parametrize(
    ("name", "value", "path"),
    [
        ("LD_LIBRARY_PATH", ":/opt/lib", ""),
        ("LD_LIBRARY_PATH", "lib:/opt/lib", "/lib"),
        ("LD_PRELOAD", "./hook.so", "/hook.so"),
        ("PYTHONPYCACHEPREFIX", ".pyc", "/.pyc"),
        ("SSL_CERT_FILE", "certs/all.pem", "/certs/all.pem"),
    ],
)
def test_relative_paths_of_variables_count_from_the_working_folder(
    name: str, value: str, path: str, tmp_path: Path
) -> None:
    found = of_another_process(cwd=tmp_path, **{name: value})["paths"]
    assert found[f"{os.path.realpath(tmp_path)}{path}"].endswith(
        (f"the variable {name}", "bytecode of Python")
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PYTHONUNBUFFERED", "1"),
        ("GIT_AUTHOR_NAME", "Ada"),
        ("LD_PRELOAD", "libjemalloc.so"),
        ("LD_BIND_NOW", "1"),
    ],
)
def test_what_is_no_path_names_nothing(name: str, value: str, tmp_path: Path) -> None:
    found = of_another_process(cwd=tmp_path, **{name: value})["paths"]
    assert not [path for path in found if path.startswith(os.path.realpath(tmp_path))]


def test_where_bytecode_is_kept_is_trusted_however_it_was_said(tmp_path: Path) -> None:
    found = of_another_process("-X", f"pycache_prefix={tmp_path}/cache", cwd=tmp_path)["paths"]
    assert found[f"{os.path.realpath(tmp_path)}/cache"] == "cached bytecode of Python"


@pytest.mark.parametrize("variable", ["XDG_CONFIG_HOME", "XDG_DATA_HOME"])
def test_what_keyring_reads_is_trusted(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file names a module to import."""
    monkeypatch.setenv(variable, str(tmp_path / "set"))
    folder = f"{os.path.realpath(tmp_path)}/set/python_keyring"
    assert TrustedPaths().covering(f"{folder}/keyringrc.cfg") == TrustedPath(
        folder, "the configuration of keyring"
    )


def test_programs_are_looked_for_only_in_folders_that_were_there(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    path = f"{tmp_path}/there:{tmp_path}/made-later:relative:/usr/bin"
    found = of_another_process(cwd=tmp_path, PATH=path)
    assert found["search"] == f"{tmp_path}/there:/usr/bin"
    assert found["paths"][f"{tmp_path}/there"] == "a folder of PATH"


def test_the_work_inside_an_environment_stays_writable(tmp_path: Path) -> None:
    """An environment that was made in the project's own folder: what Python reads of it is trusted."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path], check=True)
    program = "import sys; sys.path[:0] = {!r}; {}".format(
        [*sys.path[1:]],
        "from toolkeep.sandbox.trusted_paths import TrustedPaths as T; import os;"
        "print(T().covering(os.getcwd()), [T().covering(os.path.join(os.getcwd(), p)) is not None"
        " for p in ('bin/python', 'lib/x', 'pyvenv.cfg', 'notes.txt')])",
    )
    done = subprocess.run(
        [tmp_path / "bin" / "python", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "None [True, True, True, False]"


def test_links_on_the_way_are_known_by_their_own_place(tmp_path: Path) -> None:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "three").symlink_to("deep/../deep")
    assert links_of(f"{tmp_path}/one/three/file") == [
        f"{tmp_path}/{name}" for name in ("one", "two", "real/three")
    ]


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    assert len(links_of(f"{tmp_path}/circle")) <= 40


def test_of_nested_paths_the_outermost_is_named() -> None:
    code = [
        TrustedPath("/srv/project/src", "a"),
        TrustedPath("/srv/project/src/tool.py", "b"),
        TrustedPath("/srv/project/x", "c"),
    ]
    found = TrustedPaths(code=lambda: code).inside("/srv/project")
    assert [one.path for one in found] == ["/srv/project/src", "/srv/project/x"]


def test_programs_of_others_are_trusted_and_not_ones_own() -> None:
    def programs(agent: str) -> list[TrustedPath]:
        return [TrustedPath("/srv/project/run", "a program of the builder")] if agent != "builder" else []

    paths = TrustedPaths(programs=programs)
    assert paths.covering("/srv/project/run", "reader") is not None
    assert paths.covering("/srv/project/run", "builder") is None


def test_the_interpreter_is_looked_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from toolkeep.sandbox.launch import interpreter

    before = interpreter()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "another"))
    assert interpreter() == before
    assert of_process() is of_process()
