"""The engine: how modules are compiled, what they may import, and the thread whose ticks end runs.

It trusts wasmtime: what a module can reach is what wasmtime lets it reach, inside the process of the host.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from toolkeep.wasm.errors import Ending, WasmEnded
from toolkeep.wasm.gate import Gate
from toolkeep.wasm.pause import define_pause
from toolkeep.wasm.watch import TICK_SECONDS

if TYPE_CHECKING:
    from wasmtime import Engine

SETTINGS: Final[tuple[tuple[str, bool], ...]] = (
    ("consume_fuel", True),
    ("epoch_interruption", True),
    # Traps by explicit checks: a handler of SIGSEGV that anybody installs after wasmtime's, such as Python's
    # own faulthandler, would otherwise turn a module's bad address into the end of the host.
    ("signals_based_traps", False),
    # The same answer on every machine.
    ("cranelift_nan_canonicalization", True),
    ("wasm_relaxed_simd", False),
    # What tools do not need, and what store limits do not count.
    ("wasm_threads", False),
    ("wasm_memory64", False),
    ("wasm_multi_memory", False),
    ("gc_support", False),
)
"""What every module is compiled with."""

_MAJOR: Final = "50"
"""Epoch callbacks and standard input come from bindings that wasmtime-py does not promise to keep."""

_INSTALL: Final = "install it with: pip install 'toolkeep[wasm]'"
_LINGER_TICKS: Final = 100


class Runtime:
    """wasmtime, made ready once for all modules of a keep."""

    def __init__(self) -> None:
        self.version = _installed()
        from wasmtime import Config, Engine, Linker

        config = Config()
        for name, value in SETTINGS:
            setattr(config, name, value)
        self.engine = Engine(config)
        self.linker = Linker(self.engine)
        self.linker.define_wasi()
        define_pause(self.linker)
        self.gate = Gate(self.engine, self.linker)
        self._ticker = _Ticker(self.engine)

    @property
    def fingerprint(self) -> str:
        """What compiled code depends on besides its module."""
        return f"wasmtime {self.version}, {SETTINGS}"

    @contextmanager
    def ticking(self) -> Iterator[None]:
        """As long as this is held, the epoch goes on."""
        self._ticker.begin()
        try:
            yield
        finally:
            self._ticker.end()


def _installed() -> str:
    try:
        import wasmtime  # noqa: F401 -- it loads its library, which may not be made for this machine

        found = version("wasmtime")
    except (ImportError, OSError, RuntimeError) as error:
        raise WasmEnded(Ending.UNUSABLE, f"wasmtime is not installed; {_INSTALL}") from error
    if found.partition(".")[0] != _MAJOR:
        raise WasmEnded(Ending.UNUSABLE, f"wasmtime {_MAJOR} is needed, not {found}; {_INSTALL}")
    return found


class _Ticker:
    """One thread for all runs; it lives while there are some, and a moment longer."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._running = 0
        self._is_alive = False

    def begin(self) -> None:
        with self._lock:
            self._running += 1
            if not self._is_alive:
                self._is_alive = True
                threading.Thread(target=self._tick, name="toolkeep-wasm-ticks", daemon=True).start()

    def end(self) -> None:
        with self._lock:
            self._running -= 1

    def _tick(self) -> None:
        idle = 0
        while True:
            time.sleep(TICK_SECONDS)
            self._engine.increment_epoch()
            with self._lock:
                idle = 0 if self._running else idle + 1
                if idle >= _LINGER_TICKS:
                    self._is_alive = False
                    return
