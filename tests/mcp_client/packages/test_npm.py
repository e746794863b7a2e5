"""npm packages of servers, from a registry on loopback: resolved once, pinned, installed without scripts."""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.config.projects import accept
from tests.mcp_client.packages.registries import (
    MARK,
    NOW,
    SERVER_JS,
    Registry,
    add,
    configured,
    greeted,
    invoke,
    new_project,
    project,
    publish_hello,
    registry,
    tree,
)
from toolkeep.errors import ImportRefused
from toolkeep.mcp_client.packages.confined_install import ConfinedInstall, ProgramFailed
from toolkeep.mcp_client.packages.confined_install import Registry as ConfiguredRegistry
from toolkeep.mcp_client.packages.npm import Npm
from toolkeep.mcp_client.packages.runner_commands import PackageCommand

__all__ = ["project", "registry"]

pytestmark = [
    pytest.mark.spec("MCP-3"),
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed"),
]


SEES = """exports.answer = (name) => `hello ${name} ${require('fs').existsSync(process.argv[3] + '/state.db')} \
${require('child_process').execFileSync(__dirname + '/own').toString().trim()}`;"""
OWN = f"#!{os.path.realpath(shutil.which('node') or '')}\nconsole.log('own');"
"""A program in its packages, which it may start."""
GREETING = "hello ada false own"


@pytest.fixture(scope="module")
def hello(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Registry, Path, Result]]:
    """A project with a server whose dependency has an install script, and an archive that would escape."""
    with pytest.MonkeyPatch.context() as patch, configured(patch) as registry:
        project = new_project(tmp_path_factory.mktemp("hello"), patch)
        publish_hello(registry)
        registry.publish(
            "greeting",
            "1.0.1",
            {"index.js": SEES, "own": OWN, "../../../../escaped": "x"},
            links={"passwd": "/etc/passwd"},
            main="index.js",
            bin={"sh": "../../../../../../../bin/sh"},
            scripts={"install": MARK},
        )
        # The state of the keep lies in the folder that the agent may read.
        around = f"fs.read:{project}"
        done = add(
            project,
            "--capability",
            around,
            "--",
            "npx",
            "-y",
            "hello",
            "ada",
            str(project.parent / "state"),
        )
        accept(project)
        yield registry, project, done


Hello = tuple[Registry, Path, Result]


def test_npx_is_resolved_once_and_its_program_runs_from_the_state(hello: Hello) -> None:
    registry, project, done = hello
    assert done.exit_code == 0, done.output
    assert "2 packages, hello 1.0.0" in done.stdout
    assert "the install script of 'greeting' is not run" in done.stderr
    assert registry.credentials == set()  # npm of this user has a token for the registry
    written = "".join(path.read_text() for path in (project / ".agent").iterdir())
    assert registry.url.partition("//")[2] not in written
    # Neither a script, nor a link, nor a path with dots left anything anywhere.
    names = {path.name for path in project.parent.rglob("*")}
    assert ("cli.js" in names, names & {"marker", "escaped", "passwd", "sh"}) == (True, set())
    asked = len(registry.asked)
    assert greeted(project, f"fs.read:{project.parent}") == GREETING  # it sees nothing else of the state
    assert len(registry.asked) == asked  # the server reaches no registry, and needs none


def test_the_lock_lists_every_package_and_holds_the_tools_back_if_it_names_others(hello: Hello) -> None:
    _, project, _ = hello
    invoke(project, "lock")
    lock = project / "toolkeep.lock"
    text = lock.read_text()
    packages = [json.loads(line) for line in text.splitlines() if '"package"' in line]
    assert [(one["package"], one["version"], one["integrity"][:7]) for one in packages] == [
        ("npm:greeting", "1.0.1", "sha512-"),
        ("npm:hello", "1.0.0", "sha512-"),
    ]
    assert invoke(project, "lock", "--check").exit_code == 0
    assert greeted(project, f"fs.read:{project.parent}") == GREETING
    lock.write_text(text.replace(packages[0]["integrity"], packages[1]["integrity"]))
    assert "has another integrity hash under the same version" in invoke(project, "lock", "--check").stdout
    assert "is quarantined" in greeted(project, f"fs.read:{project.parent}")
    lock.unlink()


def test_a_pinned_tree_is_installed_anew_only_as_it_was_pinned(hello: Hello) -> None:
    registry, project, _ = hello
    # A file of the installed tree is changed: its server is not started.
    program = tree(project) / "node_modules/hello/cli.js"
    program.chmod(0o644)
    program.write_text(program.read_text() + "\n")
    assert "were changed since they were installed" in greeted(project, f"fs.read:{project.parent}")
    # The registry has newer versions by now: the pinned ones are installed.
    publish_hello(registry, "1.1.0", "1.1.0")
    refreshed = add(project, "--refresh")
    assert refreshed.exit_code == 0, refreshed.output
    assert (
        json.loads((tree(project) / "node_modules/greeting/package.json").read_text())["version"] == "1.0.1"
    )
    assert greeted(project, f"fs.read:{project.parent}") == GREETING
    # It answers with another archive for a version that was pinned: nothing is installed.
    shutil.rmtree(tree(project))
    registry.archives["/npm/greeting/-/greeting-1.0.1.tgz"] = registry.archives[
        "/npm/hello/-/hello-1.0.0.tgz"
    ]
    refused = add(project, "--refresh")
    assert (refused.exit_code, "EINTEGRITY" in refused.stderr) == (1, True)
    assert "are not installed on this machine" in greeted(project, f"fs.read:{project.parent}")


def test_versions_of_the_last_seven_days_and_scripts_need_a_word_of_their_own(
    registry: Registry, project: Path
) -> None:
    publish_hello(registry)
    publish_hello(registry, "2.0.0", when=NOW)
    refused = add(project, "--", "npx", "hello@2.0.0", "ada")
    assert (refused.exit_code, "hello@2.0.0 is younger than 7 days, or needs" in refused.stderr) == (1, True)
    strange = add(project, "--allow-scripts", "other", "--", "npx", "hello", "ada")
    assert (strange.exit_code, "'other' is no npm package of this server" in strange.stderr) == (1, True)
    assert "hello@2.0.0 is younger than 7 days and is passed over" in strange.stderr
    done = add(project, "--allow-new", "--allow-scripts", "greeting", "--", "npx", "hello", "ada")
    assert (done.exit_code, "hello 2.0.0" in done.stdout) == (0, True), done.output
    assert (tree(project) / "node_modules/greeting/marker").exists()


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        ({"bin": "cli.js", "dependencies": {"x": "REGISTRY/x.tgz"}}, "from outside the registry"),
        ({"bin": {"hello": "../../../../../bin/sh"}}, "do not bring the program"),
    ],
)
def test_what_leads_out_of_the_packages_is_refused(
    registry: Registry, project: Path, manifest: dict[str, Any], reason: str
) -> None:
    manifest = json.loads(json.dumps(manifest).replace("REGISTRY", registry.url))
    registry.publish("hello", "1.0.0", {"cli.js": ""}, **manifest)
    registry.archives["/x.tgz"] = registry.archives["/npm/hello/-/hello-1.0.0.tgz"]
    refused = add(project, "--allow-new", "--", "npx", "hello")
    assert (refused.exit_code, reason in refused.stderr) == (1, True), refused.output


def test_an_update_shows_packages_and_tools_and_leaves_the_old_ones_unless_a_person_agrees(
    registry: Registry, project: Path
) -> None:
    publish_hello(registry)
    assert add(project, "--", "npx", "hello", "ada").exit_code == 0
    accept(project)
    changed = SERVER_JS.replace("Say hello.", "Say hello to you.")
    registry.publish(
        "hello", "1.1.0", {"cli.js": changed}, bin={"hello": "cli.js"}, dependencies={"greeting": "^1.0.0"}
    )
    declined = invoke(project, "update", "hello")
    assert declined.exit_code == 1
    assert "mcp:hello: package npm:hello was 1.0.0 and is 1.1.0 (major)" in declined.stdout
    assert "mcp:hello greet: changed" in declined.stdout
    assert [tree(project).is_dir(), greeted(project)] == [True, "hello ada"]  # one tree, and it runs
    assert invoke(project, "update", "hello", "--yes").exit_code == 0
    accept(project)
    assert "is quarantined" in greeted(project)  # its description changed: a person accepts the tool, too
    assert invoke(project, "remove", "hello", "--yes").exit_code == 0
    assert "1.1.0" not in str(list((project.parent / "state" / "packages").rglob("hello/package.json")))


ENTRY: dict[str, Any] = {"version": "1.0.0", "integrity": f"sha512-{'A' * 86}==", "bin": {"hello": "cli.js"}}


def test_a_lock_file_or_an_answer_of_another_shape_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npm, install = Npm(), ConfinedInstall(tmp_path, ConfiguredRegistry(urls=("http://127.0.0.1:9/",)))
    command = PackageCommand(ecosystem="npm", packages=(("hello", ""),))

    def resolve(lock: Any, view: str = "{}") -> str:
        def run(_: ConfinedInstall, argv: Sequence[str], *__: Any, **___: Any) -> str:
            (tmp_path / "tree" / "package-lock.json").write_text(
                lock if isinstance(lock, str) else json.dumps(lock)
            )
            return view if "view" in argv else ""

        monkeypatch.setattr(ConfinedInstall, "run", run)
        try:
            return npm.resolve(install, command, datetime.now(UTC)).pinned.program
        except ImportRefused as refused:
            return refused.message

    place = "node_modules/hello"
    good = {"packages": {place: ENTRY}}
    assert resolve(good) == f"{place}/cli.js"
    changed: list[dict[str, Any]] = [
        {"version": 1},
        {"bin": {"hello": 1}},
        {"dependencies": []},
        {"peerDependencies": {"x": None}},
    ]
    broken = [{"packages": {place: {**ENTRY, **one}}} for one in changed]
    for lock in ("{", [], {}, {"packages": []}, {"packages": {}}, {"packages": {place: 1}}, *broken):
        assert "what cannot be read" in resolve(lock), lock
    for view in ("[]", '{"time": []}', '{"dist-tags": {"latest": "2"}, "time": {"2": "soon"}}'):
        assert "what cannot be read" in resolve(good, view), view


def test_the_failure_of_a_second_resolution_is_told_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = ["npm error code ETARGET", "npm error code E404"]

    def run(*_: Any, **__: Any) -> str:
        raise ProgramFailed("it ended with status 1", failures.pop(0))

    monkeypatch.setattr(ConfinedInstall, "run", run)
    install = ConfinedInstall(tmp_path, ConfiguredRegistry(urls=("http://127.0.0.1:9/",)))
    command = PackageCommand(ecosystem="npm", packages=(("hello", "2.0.0"),))
    with pytest.raises(ImportRefused, match="E404"):
        Npm().resolve(install, command, datetime.now(UTC))
    assert failures == []
