"""Packages that a server sends to a worker which has them not installed."""

import asyncio
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest
from markupsafe import _speedups
from msgspec.structs import replace

from tests.conftest import ROOT
from tests.fleet.code_sending import sending
from tests.fleet.nats_server import NatsServer, nats_server
from tests.fleet.packages import GREET, Site, write
from tests.fleet.running import Server, made_worker, new_key, running, trusted, until
from toolkeep import Code, Keep
from toolkeep.config.fleet_settings import TrustedServer, TrustedWorker
from toolkeep.execution.code_identity import code_hash_of, hash_of
from toolkeep.fleet import dispatcher
from toolkeep.fleet.code_bundle import Bundle, machine_here, pack
from toolkeep.fleet.identity import PrivateKey, PublicKey
from toolkeep.fleet.installed_package import Pin
from toolkeep.fleet.messages import Claim, Install, StoredBody
from toolkeep.fleet_worker.delivered_code import DeliveredCode

pytestmark = pytest.mark.spec("SCL-3")

TOOL = GREET["greet_tools/tools.py"]
LEVELS = ("standard", "strict", "wasm")
SERVER = TrustedServer(key="k", code=True)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A NATS with JetStream."""
    with nats_server(store=tmp_path_factory.mktemp("jetstream")) as server:
        yield server


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """The installed packages of the server; what is delivered lies beside them."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return Site(tmp_path, monkeypatch)


class Sent:
    """What a server sends of the tool `greet`."""

    def __init__(self, site: Site, module: str = "greet_tools.tools") -> None:
        with Keep() as keep:
            keep.register(site.load(module).greet)
            tool = keep.get("greet")
            code = code_hash_of(tool, keep.project) or ""
            self.bundle = msgspec.msgpack.decode(pack(tool, keep.project, code), type=Bundle)
            definition = msgspec.json.encode(tool.definition.to_dict())
            claim = Claim("greet", tool.definition_hash, code)
            self.request = Install(claim, definition, StoredBody("", b"", 0, b""))
        site.forget(module)

    def with_files(self, **changed: Any) -> "Sent":
        """The same as a bundle with other files, and the hash of these."""
        made = object.__new__(Sent)
        made.bundle = replace(self.bundle, **changed)
        inside = {name.partition("/")[2]: content for name, content in made.bundle.files.items()}
        code = hash_of(sorted(inside.items(), key=lambda one: Path(one[0])))
        made.request = replace(self.request, tool=replace(self.request.tool, code_hash=code))
        return made

    def install(self, delivered: DeliveredCode) -> None:
        delivered.install(SERVER, self.request, msgspec.msgpack.encode(self.bundle))


def test_a_delivered_package_runs_confined_and_is_not_imported_here(site: Site) -> None:
    site.install("greet-tools", files=GREET)
    sent = Sent(site)
    with Keep() as own:
        delivered = DeliveredCode(own, LEVELS)
        sent.install(delivered)
        result = own.call_sync("greet", {"name": "Ada"})
        assert (result.value, result.isolation) == ("hello Ada (1.2)", "strict"), result.text
        assert "greet_tools" not in sys.modules
        delivered.close()


def test_tools_of_one_package_share_what_was_unpacked(site: Site, tmp_path: Path) -> None:
    site.install("greet-tools", files=GREET)
    sent = Sent(site)
    again = object.__new__(Sent)
    again.bundle, again.request = replace(sent.bundle, reference="greet.other"), sent.request
    with Keep() as own:
        delivered = DeliveredCode(own, LEVELS)
        sent.install(delivered)
        again.install(delivered)
        assert len(list(tmp_path.glob("toolkeep-code-*/*"))) == 1
        delivered.close()


def test_a_delivered_package_replaces_none_that_is_installed_for_another_tool(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.install("greet-tools", "2.0", GREET)
    sent = Sent(site)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.path.remove(str(site.folder))
    here = Site(tmp_path / "worker", monkeypatch)
    tools = TOOL.replace("def greet(", "def own_greet(")
    here.install("greet-tools", "1.0", {**GREET, "greet_tools/tools.py": tools})
    with Keep() as own:
        own.register(here.load("greet_tools.tools").own_greet)
        delivered = DeliveredCode(own, LEVELS)
        sent.install(delivered)
        values = [own.call_sync(name, {"name": "Ada"}).value for name in ("greet", "own_greet", "greet")]
        assert values == ["hello Ada (2.0)", "hello Ada (1.0)", "hello Ada (2.0)"]
        delivered.close()


def value_of(sent: Sent) -> Any:
    with Keep() as own:
        delivered = DeliveredCode(own, LEVELS)
        sent.install(delivered)
        result = own.call_sync("greet", {"name": "Ada"})
        delivered.close()
    assert result.ok, result.text
    return result.value


def test_an_extension_module_runs(site: Site) -> None:
    library = Path(_speedups.__file__)
    tools = "from greet_tools._speedups import _escape_inner\n" + TOOL
    tools = tools.replace("{WORDS}", "{_escape_inner('<hi>')}").replace("f'", 'f"').replace(")'", ')"')
    library_name = f"greet_tools/{library.name}"
    site.install("greet-tools", files={**GREET, "greet_tools/tools.py": tools}, also=(library_name,))
    write(site.folder, {library_name: library.read_bytes()})
    assert value_of(Sent(site)) == "&lt;hi&gt; Ada (1.2)"


def test_a_single_module_runs(site: Site) -> None:
    module = TOOL.partition("\n")[2].replace("{WORDS}", "hi").replace("{__version__}", "")
    site.install("greet", "3", {"greet_alone.py": module})
    assert value_of(Sent(site, "greet_alone")) == "hi Ada ()"


def renamed(sent: Sent, name: str) -> Sent:
    files = {path.replace("greet_tools", name, 1): content for path, content in sent.bundle.files.items()}
    return sent.with_files(files=files, target=f"{name}.tools")


def plus(name: str, content: bytes = b"", **changed: Any) -> Callable[[Sent], Sent]:
    return lambda sent: sent.with_files(files={**sent.bundle.files, name: content}, **changed)


def but(**changed: Any) -> Callable[[Sent], Sent]:
    return lambda sent: sent.with_files(**changed)


def needing(**requires: str) -> Callable[[Sent], Sent]:
    return lambda sent: sent.with_files(pin=Pin("greet-tools", "1.2", requires))


def other_hash(sent: Sent) -> Sent:
    made = sent.with_files()
    made.request = replace(sent.request, tool=replace(sent.request.tool, code_hash="0" * 64))
    return made


def changed_file(sent: Sent) -> Sent:
    made = plus("greet_tools/words.txt", b"bye")(sent)
    made.request = sent.request
    return made


LIBRARY = "greet_tools/fast.cpython-399-riscv64-linux-gnu.so"


@pytest.mark.parametrize(
    ("why", "attack"),
    [
        ("is called 'json', like one of Python", lambda sent: renamed(sent, "json")),
        ("is called 'toolkeep', like one of Python or toolkeep", lambda sent: renamed(sent, "toolkeep")),
        ("is called 'secrets'", lambda sent: sent.with_files(files={"secrets.py": b""}, target="secrets")),
        ("not one package", plus("json/__init__.py")),
        ("not one package", plus("sitecustomize.py")),
        ("not one package", plus("../toolkeep/x.py")),
        ("not one package", plus("/greet_tools/x.py")),
        ("not a plain one", plus("greet_tools/../../x.py")),
        ("not a plain one", plus("greet_tools/.pth")),
        ("not a plain one", plus("greet_tools/__pycache__/tools.cpython-311.pyc")),
        ("not one package", but(target="os", reference="system")),
        ("not one package", but(pin=None)),
        ("not one package", but(files={})),
        ("names no tool", but(target="greet_tools.tools/../x")),
        ("names no tool", but(reference="greet.__globals__['x']")),
        ("names no tool", but(files={"greet_tools/tools.py": b""})),
        ("needs paint 2, which is not installed here", needing(paint="2")),
        (r"needs pytest 0\.0\.1, where .* is installed", needing(pytest="0.0.1")),
        ("cannot be read", needing(**{"../paint": "2"})),
        ("cannot be read", but(pin=Pin("../up", "1", {}))),
        ("cannot be read", but(pin=Pin("up", "1/../..", {}))),
        ("has extension modules for no known machine, and this is ", plus(LIBRARY)),
        ("for cpython-399, linux-riscv64, and this", plus(LIBRARY, machine="cpython-399, linux-riscv64")),
        ("more than", but(files={f"greet_tools/f{number}": b"" for number in range(2_001)})),
        ("code is not that of its hash", other_hash),
        ("code is not that of its hash", changed_file),
    ],
)
@pytest.mark.usefixtures("_told_soon")
def test_a_package_that_is_not_what_a_server_may_send_is_refused_and_recorded(
    stored: NatsServer, site: Site, why: str, attack: Callable[[Sent], Sent]
) -> None:
    site.install("greet-tools", files=GREET)
    sent = attack(Sent(site))

    async def main() -> None:
        async with sending(stored) as sender:
            told = await sender.install(sent.request, msgspec.msgpack.encode(sent.bundle))
            assert re.search(why, told), told
            assert "greet" not in {one.name for one in sender.worker.keep.tools()}
            await sender.recorded()

    asyncio.run(main())


def test_an_extension_module_for_this_machine_passes_that_check_only(site: Site) -> None:
    site.install("greet-tools", files=GREET)
    sent = plus(LIBRARY, machine=machine_here())(Sent(site))
    with Keep() as own:
        delivered = DeliveredCode(own, LEVELS)
        sent.install(delivered)
        delivered.close()


def test_what_a_server_cannot_send_is_tried_once_in_a_session_and_told_to_the_operator(
    stored: NatsServer, site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dispatcher, "_APPEAR_SECONDS", 1.0)
    site.install("greet-tools", files=GREET, also=("_greet.py",))
    greet, key, worker = site.load("greet_tools.tools").greet, new_key(), new_key()

    async def main() -> None:
        server = Server(stored, key, [trusted(worker)], tools=[greet], runs_on={"greet": ""})
        may_install = TrustedServer(key=key.public.text, code=True)
        async with server, running(made_worker(stored, worker, [may_install], levels=LEVELS, tools=[])):
            await until(lambda: server.runner.workers()[0].state == "ready")
            for _ in range(2):
                result = await server.call("greet", {"name": "Ada"})
                assert result.code is Code.WORKER_UNAVAILABLE
                diagnosis = server.keep.diagnosis(result.call_id)
                assert diagnosis is not None
                assert diagnosis.detail.startswith("worker 'one': not sent: greet_tools: its distribution")

    asyncio.run(main())
    tried = [one for one in caplog.messages if one == "code could not be sent to a worker"]
    assert len(tried) == 1


class InstalledWorker:
    """`toolkeep worker`, as a person starts it, without the packages of the server."""

    def __init__(self, nats: NatsServer, server: PublicKey, home: Path) -> None:
        (home / ".agent").mkdir(parents=True)
        (home / "project").mkdir()
        self._environment = {"HOME": str(home), "PATH": os.environ["PATH"]}
        public = subprocess.run(
            self._command("--show-key"), env=self._environment, cwd=ROOT, check=True, capture_output=True
        )
        self.trusted = TrustedWorker(name="one", key=public.stdout.decode().strip())
        settings = f"worker:\n  nats: {{servers: '{nats.url}'}}\n  servers:\n"
        settings += f"    - {{name: main, key: '{server.text}', code: true}}\n"
        (home / ".agent" / "config.yml").write_text(settings)
        self.process = subprocess.Popen(self._command(), env=self._environment, cwd=ROOT)

    def _command(self, *options: str) -> list[str]:
        project = str(Path(self._environment["HOME"], "project"))
        return [sys.executable, "-m", "toolkeep", "worker", "--project", project, *options]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(20)


@pytest.mark.parametrize("requires", [(), ("paint",)], ids=("complete", "lacking"))
def test_a_worker_without_the_package_runs_its_tool_or_says_what_it_lacks(
    stored: NatsServer, site: Site, tmp_path: Path, requires: tuple[str, ...]
) -> None:
    site.install("greet-tools", files=GREET, requires=requires)
    site.install("paint", "2.0.1")
    key: PrivateKey = new_key()

    async def main() -> None:
        with InstalledWorker(stored, key.public, tmp_path / "worker") as worker:
            greet = site.load("greet_tools.tools").greet
            server = Server(stored, key, [worker.trusted], tools=[greet], runs_on={"greet": ""})
            async with server:
                await until(lambda: server.runner.workers()[0].state == "ready")
                result = await server.call("greet", {"name": "Ada"})
                diagnosis = server.keep.diagnosis(result.call_id)
                if not requires:
                    assert (result.value, result.isolation) == ("hello Ada (1.2)", "strict"), result.text
                    return
                assert result.code is Code.WORKER_UNAVAILABLE
                why = "greet-tools 1.2 needs paint 2.0.1, which is not installed here"
                assert diagnosis is not None
                assert diagnosis.detail == f"worker 'one': {why}"
                assert why not in result.text
                (refused,) = [one for one in server.said("RefusedElsewhere") if one["reason"] == why]
                assert (refused["worker"], refused["what"]) == ("one", "code")

    asyncio.run(main())
