"""Runs of modules on wasmtime's C API, below any keep."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from wasmtime import wat2wasm

from tests.execution import wat
from toolkeep.wasm.c_api import Guest, OpenStore
from toolkeep.wasm.errors import Ending, WasmEnded
from toolkeep.wasm.modules import LoadedModule, Modules
from toolkeep.wasm.run import Bounds, Run
from toolkeep.wasm.run_watch import Watch
from toolkeep.wasm.runtime import Runtime

BOUNDS = Bounds(memory_bytes=1 << 20, fuel=10**8, output_bytes=1 << 20)


@pytest.fixture
def runtime() -> Runtime:
    return Runtime()


def loaded(runtime: Runtime, folder: Path, body: bytes) -> LoadedModule:
    return Modules(runtime, None).load(str(wat.write(folder, body)))


def run(runtime: Runtime, module: LoadedModule, *, is_given_up: bool = False) -> Run:
    return Run(runtime, module, BOUNDS, Watch(30, lambda: is_given_up))


@pytest.mark.parametrize("body", [wat.ECHO, wat.LIBRARY], ids=["command", "library"])
def test_runs_beside_each_other_get_their_own_answers(body: bytes, runtime: Runtime, tmp_path: Path) -> None:
    module = loaded(runtime, tmp_path, body)
    requests = [b"%d" % number * 200 for number in range(200)]

    def answer(request: bytes) -> bytes:
        return run(runtime, module).answer("echo", request, ()).body

    with ThreadPoolExecutor(16) as threads:
        assert list(threads.map(answer, requests)) == requests


def test_a_run_is_forgotten_after_its_answer(runtime: Runtime, tmp_path: Path) -> None:
    module = loaded(runtime, tmp_path, wat.ECHO)
    run(runtime, module).answer("echo", b"{}", ())
    with pytest.raises(WasmEnded):
        run(runtime, module, is_given_up=True).answer("echo", b"{}", ())
    assert runtime.c._hosts == {}


def test_an_output_that_nobody_takes_is_an_error_of_the_module(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(Run, "take_output", breaks)
    # It sees the error number of `fd_write`, and ignores it.
    assert run(runtime, loaded(runtime, tmp_path, wat.ECHO)).answer("echo", b"{}", ()).body == b""


def test_a_run_whose_watch_breaks_ends(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(_: object) -> bool:
        raise ZeroDivisionError

    watch = Watch(30, lambda: False)
    spinning = Run(runtime, loaded(runtime, tmp_path, wat.LOOP), BOUNDS._replace(fuel=1 << 60), watch)
    monkeypatch.setattr(Run, "is_over", property(breaks))
    with pytest.raises(WasmEnded) as ended:
        spinning.answer("spin", b"{}", ())
    assert ended.value.ending is Ending.DIED


def test_an_export_is_never_taken_for_one_of_another_kind(runtime: Runtime, tmp_path: Path) -> None:
    module = loaded(runtime, tmp_path, wat.LIBRARY)
    store = OpenStore(runtime.c, runtime.engine)
    guest = runtime.c.instantiate(store, module.linked)
    with pytest.raises(WasmEnded):
        guest.call(b"memory", 1)
    with pytest.raises(WasmEnded):
        guest.call(b"not there")


def test_nothing_outside_of_its_memory_is_read_or_written(runtime: Runtime, tmp_path: Path) -> None:
    module = loaded(runtime, tmp_path, wat.LIBRARY)
    store = OpenStore(runtime.c, runtime.engine)
    guest: Guest = runtime.c.instantiate(store, module.linked)
    page = 65536
    size = next(n for n in range(page, page * 100, page) if guest.read(n, 1) is None)
    assert guest.write(size - 3, b"end")
    assert guest.read(size - 3, 3) == b"end"
    assert guest.read(size, 0) == b""
    assert (guest.read(size - 3, 4), guest.read(size + 1, 0), guest.read(-1, 1)) == (None, None, None)
    assert not guest.write(size - 2, b"end")
    assert not guest.write(-1, b"end")


def test_memory_that_grows_is_found_where_it_is_then(runtime: Runtime, tmp_path: Path) -> None:
    grows = wat2wasm("""(module (memory (export "memory") 1)
      (func (export "alloc") (param i32) (result i32) (drop (memory.grow (i32.const 10))) (i32.const 600000))
      (func (export "call") (param $at i32) (param $size i32) (result i64)
        (i64.or (i64.shl (i64.extend_i32_u (local.get $at)) (i64.const 32))
          (i64.extend_i32_u (local.get $size)))))""")
    module = loaded(runtime, tmp_path, bytes(grows))
    assert run(runtime, module).answer("grow", b"far away", ()).body == b"far away"
