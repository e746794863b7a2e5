"""Unix sockets of a supervised program: it reaches its own, and none of the host or of another program."""

import asyncio
import json
import socket
from contextlib import AsyncExitStack, ExitStack
from errno import EACCES, EAFNOSUPPORT, EBADF, ECONNREFUSED, EFAULT, EINVAL, ENOENT, ENOTSOCK, EPERM
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.sandbox.test_persistent_process import recipe
from toolkeep.sandbox.isolation_levels import Isolation
from toolkeep.sandbox.launch import interpreter
from toolkeep.sandbox.persistent_process import PersistentProcess, ProcessExited, Program
from toolkeep.sandbox.plan import Recipe
from toolkeep.sandbox.seccomp_filters import for_level, supervision
from toolkeep.sandbox.worker_pool import Pool

pytestmark = pytest.mark.spec("SBX-1")

DRIVER = """
import concurrent.futures, ctypes, json, multiprocessing, os, socket, sys
from socket import AF_INET, AF_UNIX, SOCK_DGRAM, SOCK_SEQPACKET, SOCK_STREAM
libc = ctypes.CDLL(None, use_errno=True)
kept = []
def listening(path, kind=SOCK_STREAM):
    kept.append(socket.socket(AF_UNIX, kind))
    kept[-1].bind(path)
    kept[-1].listen()
    return kept[-1]
def heard(server, path):
    with socket.socket(AF_UNIX, server.type) as client:
        client.connect(path)
        client.send(b"hello")
        return server.accept()[0].recv(5).decode()
def failed(act, *arguments):
    try:
        act(*arguments)
    except OSError as error:
        return error.errno
    return 0
def connected(path):
    return failed(socket.socket(AF_UNIX).connect, path)
def raw(*arguments):
    libc.connect(*arguments)
    return ctypes.get_errno()
def in_thread(act, *arguments):
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        return threads.submit(act, *arguments).result()
for line in sys.stdin:
    print(json.dumps(eval(line)), flush=True)
"""


def supervised(**grants: Any) -> Recipe:
    made = recipe()
    profile = for_level(Isolation.STRICT, may_spawn=True, is_supervised=True)
    worker = replace(made.worker, filter=profile.program(), supervisor=supervision(profile))
    zygote = replace(made.zygote, has_proc=True, **grants)
    return Recipe(zygote=zygote, worker=worker, grant=replace(made.grant, **grants))


def answers(made: Recipe, *asked: list[str]) -> list[list[Any]]:
    """What programs of one zygote answer, one after another."""
    argv = (interpreter(), "-I", "-S", "-c", DRIVER)

    async def main() -> list[list[Any]]:
        async with AsyncExitStack() as stack:
            pool = Pool()
            stack.push_async_callback(pool.close)
            told = []
            for expressions in asked:
                program = Program(path=argv[0], argv=argv)
                process = await PersistentProcess.start(pool, made, program, line_bytes=1 << 16)
                stack.push_async_callback(process.close)
                answered = []
                for expression in expressions:
                    await process.send(f"{expression}\n".encode())
                    try:
                        answered.append(json.loads(await process.line()))
                    except ProcessExited as error:
                        raise AssertionError(f"{expression}: {error}: {process.last_words}") from error
                told.append(answered)
            return told

    return asyncio.run(main())


def test_a_program_reaches_its_own_sockets_in_every_way() -> None:
    expected = {
        "heard(listening('/box/scratch/one'), '/box/scratch/one')": "hello",
        "in_thread(heard, kept[0], 'one')": "hello",
        "os.symlink('/box/scratch/one', 'link') or heard(kept[0], 'link')": "hello",
        r"heard(listening('\0name'), '\0name')": "hello",
        "heard(listening('packets', SOCK_SEQPACKET), 'packets')": "hello",
        "list(multiprocessing.Manager().list([1]))": [1],
        "connected('/box/scratch/missing')": ENOENT,
        "[each.close() for each in kept] and connected('/box/scratch/one')": ECONNREFUSED,
    }
    ((*answered,),) = answers(supervised(), list(expected))
    assert answered == list(expected.values())


def test_a_program_reaches_no_socket_of_the_host_and_makes_none_in_a_granted_folder(tmp_path: Path) -> None:
    folders = {"read": tmp_path / "read", "write": tmp_path / "write"}
    for folder in folders.values():
        folder.mkdir()
    expected = {
        f"connected('{folders['read']}/s')": EACCES,
        f"connected('{folders['write']}/s')": EACCES,
        f"os.chdir('{folders['write']}') or connected('s')": EACCES,
        "failed(socket.socket(AF_UNIX).bind, 'made')": EACCES,
        f"listening('/box/scratch/m') and failed(os.rename, '/box/scratch/m', '{folders['write']}/m') > 0": True,
        "failed(socket.socket, AF_UNIX, SOCK_DGRAM)": EPERM,
        "failed(socket.socket, AF_INET)": EAFNOSUPPORT,
        "raw(0, b'', 200)": EINVAL,
        "raw(0, 8, 16)": EFAULT,
        r"raw(0, b'\1\0\0name', 8)": ENOTSOCK,
        r"raw(99, b'\1\0\0name', 8)": EBADF,
    }
    made = supervised(**{kind: (str(folder.resolve()),) for kind, folder in folders.items()})
    with ExitStack() as held:
        for folder in folders.values():
            listener = held.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(f"{folder}/s")
            listener.listen()
            for path in (folder, folder / "s"):
                path.chmod(0o777)
        ((*answered,),) = answers(made, list(expected))
    assert answered == list(expected.values())
    assert [path.name for path in folders["write"].iterdir()] == ["s"]


def test_two_programs_do_not_meet_on_an_abstract_name() -> None:
    first, second = answers(
        supervised(), [r"bool(listening('\0name'))"], [r"connected('\0name')", r"bool(listening('\0name'))"]
    )
    # The second makes the name anew: it is not that of the first.
    assert (first, second) == ([True], [ECONNREFUSED, True])
