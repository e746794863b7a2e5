"""Code that a server installs on a worker which lacks it."""

import asyncio
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.execution import wat
from tests.fleet.code_sending import LEVELS, sending
from tests.fleet.nats_server import NatsServer, nats_server
from tests.fleet.running import Server, made_worker, new_key, running, trusted
from toolkeep import Code, Keep, ToolDefinition, WasmTool, tool
from toolkeep.config.fleet_settings import TrustedServer
from toolkeep.config.tools_file import find_tools_file
from toolkeep.definitions.constraints import Constraints
from toolkeep.definitions.vocabulary import SideEffect
from toolkeep.execution.code_identity import code_hash_of
from toolkeep.fleet import dispatcher
from toolkeep.fleet.code_bundle import Bundle, pack
from toolkeep.fleet.messages import Claim, Claims, Install, InstallResult, StoredBody, encode
from toolkeep.fleet.remote_worker import WorkerSession
from toolkeep.fleet.sealed_session import FrameInvalid, SealedSession
from toolkeep.fleet_worker.delivered_code import CodeRefused, DeliveredCode
from toolkeep.keep.open import tools_file_provider, tools_reader
from toolkeep.registry.tool_provider import FILES

pytestmark = pytest.mark.spec("SCL-3")

FILE = '''
from pathlib import Path
from sent_words.loud import louder
from toolkeep import tool

@tool(effects="none")
def sent_shout(text: str) -> str:
    """Say it loudly."""
    return louder(text)
'''
LOUD = """
from pathlib import Path

def louder(text):
    return text.upper() + Path(__file__).with_name("end.txt").read_text()
"""


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A NATS with JetStream."""
    with nats_server(store=tmp_path_factory.mktemp("jetstream")) as server:
        yield server


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a file of tools, and a package that it uses."""
    root = tmp_path / "project"
    (root / "sent_words").mkdir(parents=True)
    (root / "tools.py").write_text(FILE)
    (root / "sent_words" / "__init__.py").write_text("")
    (root / "sent_words" / "loud.py").write_text(LOUD)
    (root / "sent_words" / "end.txt").write_text("!")
    return root


def load(keep: Keep, project: Path) -> None:
    file = find_tools_file("tools.py", project)
    loaded = keep.load(own=[tools_file_provider(file, keep, tools_reader(project), name=FILES)])
    assert loaded.skipped == ()


def test_a_worker_installs_code_of_a_server_that_may_send_it(
    stored: NatsServer, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "_APPEAR_SECONDS", 2.0)
    monkeypatch.setattr(tempfile, "tempdir", str(project.parent))
    echo = WasmTool(
        ToolDefinition(name="echo", description="Say it again.", side_effects=(SideEffect.NONE,)),
        str(wat.write(project, wat.ECHO)),
    )

    async def main() -> None:
        key, worker = new_key(), new_key()
        runs_on: dict[str, str | None] = {"sent_shout": "", "echo": ""}
        server = Server(stored, key, [trusted(worker)], tools=[echo], runs_on=runs_on)
        plain = TrustedServer(key=key.public.text)
        async with server:
            load(server.keep, project)
            async with running(made_worker(stored, worker, [plain], levels=LEVELS, tools=[])):
                result = await server.call("sent_shout", {"text": "hi"})
                assert result.code is Code.WORKER_UNAVAILABLE
            may_install = msgspec.structs.replace(plain, code=True)
            async with running(made_worker(stored, worker, [may_install], levels=LEVELS, tools=[])):
                assert (await server.call("sent_shout", {"text": "hi"})).value == "HI!"
                echoed = await server.call("echo", {})
                assert (echoed.value, echoed.isolation) == ({}, "wasm")
                assert [ran["isolation"] for ran in server.said("RanElsewhere")] == ["strict", "wasm"]
                assert not any(name.startswith("sent_words") for name in sys.modules)
                assert len(list(project.parent.glob("toolkeep-code-*"))) == 1
        assert list(project.parent.glob("toolkeep-code-*")) == []

    asyncio.run(main())


def _request(keep: Keep, name: str, **changed: Any) -> tuple[Install, Bundle]:
    registered = keep.get(name)
    code = code_hash_of(registered, keep.project) or ""
    bundle = msgspec.msgpack.decode(pack(registered, keep.project, code), type=Bundle)
    claim = Claim(name, registered.definition_hash, code)
    definition = msgspec.json.encode(registered.definition.to_dict())
    request = Install(claim, definition, StoredBody("", b"", 0, b""))
    return msgspec.structs.replace(request, **changed), bundle


@pytest.mark.usefixtures("_told_soon")
def test_code_that_is_not_what_a_server_may_send_is_refused_and_recorded(
    stored: NatsServer, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(project.parent))
    attacks: list[tuple[str, Install, bytes]] = []
    with Keep() as keep:
        load(keep, project)
        good, bundle = _request(keep, "sent_shout")
        replace = msgspec.structs.replace
        claim, files = good.tool, bundle.files

        def refused(why: str, request: Install = good, of: Any = bundle) -> None:
            attacks.append((why, request, of if isinstance(of, bytes) else msgspec.msgpack.encode(of)))

        def with_file(name: str) -> Bundle:
            return replace(bundle, files={**files, name: b"x"})

        def defined(**changed: Any) -> Install:
            definition = keep.get("sent_shout").definition.replace(**changed)
            data = msgspec.json.encode(definition.to_dict())
            return replace(good, definition=data, tool=replace(claim, definition_hash=definition.hash))

        refused("definition is not", replace(good, tool=replace(claim, definition_hash="0" * 64)))
        refused("definition cannot", replace(good, definition=b"{"))
        refused("code is not", replace(good, tool=replace(claim, code_hash="0" * 64)))
        changed = {**files, "sent_words/loud.py": b"def louder(text): return 'x'"}
        refused("code is not", of=replace(bundle, files=changed))
        refused("cannot be read", of=b"\xc1")
        for name in (
            "../out.py",
            "/out.py",
            ".hidden",
            "a//b",
            "a/./b",
            "sent_words/__pycache__/x.pyc",
            "a\nb",
        ):
            refused("not a plain one", of=with_file(name))
        refused("cannot be written", of=with_file("tools.py/x"))
        refused("more than", of=replace(bundle, files={f"f{number}": b"" for number in range(2_001)}))
        refused("names no tool", of=replace(bundle, reference="sent_shout.__globals__['x']"))
        refused("names no tool", of=replace(bundle, target="os", reference="system"))
        refused("more or less than a module", of=replace(bundle, kind="wasm"))
        refused("it would run at standard", defined(constraints=Constraints()))

        # `sent_words` is no package then, and would be one that is installed here
        changed = {"sent_words/loud.py": b"import helper", "helper.py": b""}
        for name, content in changed.items():
            (project / "other" / name).parent.mkdir(parents=True, exist_ok=True)
            (project / "other" / name).write_bytes(content)
        seal = find_tools_file("sent_words.loud", project / "other").seal
        refused(
            "names no tool",
            replace(good, tool=replace(claim, code_hash=seal)),
            of=replace(bundle, files=changed, target="sent_words.loud", reference="louder"),
        )

    packed = msgspec.msgpack.encode(bundle)

    def holding() -> Keep:
        held = Keep()
        held.register(sent_shout)
        return held

    async def main() -> None:
        async with sending(stored) as sender:
            for why, request, of in attacks:
                told = await sender.install(request, of)
                assert why in told, (why, told)
                assert sender.worker.keep.try_get("sent_shout") is None
            await sender.recorded()
            assert await sender.install(good, packed) == ""
            assert sender.worker.keep.try_get("sent_shout") is not None
        async with sending(stored, holding) as sender:
            assert "already registered" in await sender.install(good, packed)
            await sender.recorded()

    asyncio.run(main())


@pytest.mark.parametrize("changed", [{"code": False}, {"tools": ("other",)}])
def test_code_of_a_server_that_may_not_send_it_is_refused(project: Path, changed: dict[str, Any]) -> None:
    server = msgspec.structs.replace(TrustedServer(key="k", code=True), **changed)
    with Keep() as keep, Keep() as own:
        load(keep, project)
        request, bundle = _request(keep, "sent_shout")
        with pytest.raises(CodeRefused, match="may not install"):
            DeliveredCode(own, LEVELS).install(server, request, msgspec.msgpack.encode(bundle))
        assert not own.tools()


@tool(effects="none")
def sent_shout(text: str) -> str:
    """A tool that a worker has by itself."""
    return text


def test_an_install_result_for_code_that_nobody_sent_counts_for_nothing() -> None:
    worker, keys = new_key(), (bytes(32), bytes([1]) * 32)
    ours, theirs = (SealedSession(bytes(8), seal=one, open_=other) for one, other in (keys, keys[::-1]))
    claims = Claims((), LEVELS, (), 4, "0", takes_code=True)
    session = WorkerSession(trusted(worker), worker.public, ours, claims, 60.0, lambda _: None)
    sent, other = Claim("wait", "0" * 64, "0" * 64), Claim("wait", "0" * 64, "1" * 64)
    session.installing[msgspec.structs.astuple(sent)] = 0.0
    with pytest.raises(FrameInvalid, match="nobody sent"):
        session.open(theirs.seal(encode(InstallResult(other))))
    assert session.tools == set()
    session.open(theirs.seal(encode(InstallResult(sent))))
    assert session.tools == {msgspec.structs.astuple(sent)}


def test_code_that_a_worker_refused_is_not_sent_again_in_the_session() -> None:
    worker, keys = new_key(), (bytes(32), bytes([1]) * 32)
    ours, theirs = (SealedSession(bytes(8), seal=one, open_=other) for one, other in (keys, keys[::-1]))
    claims = Claims((), LEVELS, (), 4, "0", takes_code=True)
    session = WorkerSession(trusted(worker), worker.public, ours, claims, 60.0, lambda _: None)
    sent = Claim("wait", "0" * 64, "0" * 64)
    tool = (sent.name, sent.definition_hash, sent.code_hash)
    assert session.could_install(tool, "", "strict", "local")
    session.installing[tool] = 0.0
    session.open(theirs.seal(encode(InstallResult(sent, "it needs paint"))))
    assert session.not_installed == {tool: "it needs paint"}
    assert not session.could_install(tool, "", "strict", "local")
