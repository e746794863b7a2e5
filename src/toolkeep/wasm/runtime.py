"""wasmtime engine: compilation settings, linker, and the epoch thread that interrupts runs.

Trusts wasmtime: the sandbox boundary lies inside the host process, with no kernel boundary behind it.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from toolkeep.wasm.c_api import CApi
from toolkeep.wasm.errors import Ending, WasmEnded
from toolkeep.wasm.open_file_limit import OpenFileLimit
from toolkeep.wasm.poll_oneoff import define_poll_oneoff
from toolkeep.wasm.run_watch import TICK_SECONDS

if TYPE_CHECKING:
    from wasmtime import Engine

SETTINGS: Final[tuple[tuple[str, bool], ...]] = (
    ("consume_fuel", True),
    ("epoch_interruption", True),
    # Traps by explicit bounds checks instead of SIGSEGV: a signal handler installed after wasmtime's, such as
    # Python's faulthandler, would turn a module's bad address into a crash of the host. Costs about a third
    # of the speed in loops that mostly access memory.
    ("signals_based_traps", False),
    # Deterministic results on every machine.
    ("cranelift_nan_canonicalization", True),
    ("wasm_relaxed_simd", False),
    # Attack surface that tools do not need, and memory that store limits do not count.
    ("wasm_threads", False),
    ("wasm_memory64", False),
    ("wasm_multi_memory", False),
    ("gc_support", False),
)
"""Compilation settings of every module."""

_MAJOR: Final = "50"
"""Epoch callbacks and standard input use bindings that wasmtime-py does not guarantee to keep."""

_INSTALL: Final = "install it with: pip install 'toolkeep[wasm]'"
_LINGER_TICKS: Final = 100


class Runtime:
    """wasmtime, set up once for all modules of a keep."""

    def __init__(self) -> None:
        self.version = _installed()
        from wasmtime import Config, Engine, Linker

        config = Config()
        for name, value in SETTINGS:
            setattr(config, name, value)
        self.engine = Engine(config)
        self.linker = Linker(self.engine)
        self.linker.define_wasi()
        define_poll_oneoff(self.linker)
        self.c = CApi()
        self.gate = OpenFileLimit(self.engine, self.linker)
        self._ticker = _Ticker(self.engine)

    @property
    def fingerprint(self) -> str:
        """What compiled code depends on besides its module; part of the cache key."""
        return f"wasmtime {self.version}, {SETTINGS}"

    @contextmanager
    def ticking(self) -> Iterator[None]:
        """While this is held, the epoch advances."""
        self._ticker.begin()
        try:
            yield
        finally:
            self._ticker.end()


def _installed() -> str:
    from importlib.metadata import version  # 10 ms that only WASM tools need

    try:
        import wasmtime  # noqa: F401 -- it loads its library, which may not be made for this machine

        found = version("wasmtime")
    except (ImportError, OSError, RuntimeError) as error:
        raise WasmEnded(Ending.UNUSABLE, f"wasmtime is not installed; {_INSTALL}") from error
    # Another major version may change private bindings silently; refuse instead of running without limits.
    if found.partition(".")[0] != _MAJOR:
        raise WasmEnded(Ending.UNUSABLE, f"wasmtime {_MAJOR} is needed, not {found}; {_INSTALL}")
    return found


class _Ticker:
    """One thread for all runs; exits when there have been none for a while."""

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
            # One epoch for all runs: each checks its own deadline at every tick.
            self._engine.increment_epoch()
            with self._lock:
                idle = 0 if self._running else idle + 1
                if idle >= _LINGER_TICKS:
                    self._is_alive = False
                    return
