"""Attempts to harm the host through the reply pipe, which is descriptor 4 in a worker."""

import contextlib
import os
import threading
import time
from typing import Any, NoReturn

from .declare import attempt
from .system import take_name

_REPLY = 4


def _write(data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(_REPLY, rest) :]


def _frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def _leave(data: bytes) -> NoReturn:
    with contextlib.suppress(OSError):
        _write(data)
    os._exit(0)


@attempt("host-sound", "confused", endings=("broken", "too_big"))
def say_garbage() -> None:
    _leave(b"\xff\xfe garbage that is no frame " * 100)


@attempt("host-sound", "confused", endings=("broken",))
def say_bytes_that_are_no_text() -> None:
    _leave(_frame(b'{"ok":"\xff\xfe\xfd"}'))


@attempt("host-sound", "confused", endings=("broken",))
def say_half_of_the_json() -> None:
    _leave(_frame(b'{"ok":[1,2'))


@attempt("host-sound", "confused", endings=("died",))
def say_half_of_a_frame() -> None:
    _leave(_frame(b'{"ok":"' + b"x" * 1000 + b'"}')[:500])


@attempt("host-sound", "hung", endings=("timed_out",), deadline_s=2.0)
def say_half_of_a_frame_and_wait() -> None:
    _write(_frame(b'{"ok":"' + b"x" * 1000 + b'"}')[:500])
    time.sleep(60)


@attempt("host-sound", "hung", endings=("timed_out",), deadline_s=2.0)
def say_one_byte_at_a_time() -> None:
    for byte in _frame(b'{"ok":"' + b"x" * 10_000 + b'"}'):
        _write(bytes([byte]))
        time.sleep(0.01)


@attempt("host-sound", "confused", endings=("too_big",))
def promise_a_giant_frame() -> None:
    _leave(b"\xff\xff\xff\xff{")


@attempt("host-sound", "swamped", endings=("too_big",))
def say_more_than_is_allowed() -> None:
    _leave(_frame(b'{"ok":"' + b"x" * 20_000_000 + b'"}'))


@attempt("host-sound", "swamped", endings=("broken", "too_big"))
def never_stop_talking() -> None:
    while True:
        _write(_frame(b'{"note":1}') * 5000)


@attempt("host-sound", "swamped", endings=("broken",))
def tell_progress_without_end() -> None:
    while True:
        _write(_frame(b'{"progress":[1,2,"on my way"]}') * 5000)


@attempt("host-sound", "swamped", endings=("broken", "too_big"))
def tell_giant_progress() -> None:
    _leave(_frame(b'{"progress":[1,2,"' + b"x" * 900_000 + b'"]}') * 20)


@attempt("host-sound", "confused", endings=("broken",))
def tell_progress_that_is_no_number() -> None:
    _leave(_frame(b'{"progress":[NaN,1e999,"a"]}') + _frame(b'{"ok":1}'))


@attempt("host-sound", "hung", endings=("timed_out",), deadline_s=2.0)
def tell_progress_to_gain_time() -> None:
    while True:
        _write(_frame(b'{"progress":[1,2,"nearly done"]}'))
        time.sleep(0.1)


@attempt("host-sound", "doubled", endings=("ok",))
def tell_progress_after_the_answer() -> None:
    _leave(_frame(b'{"ok":"first"}') + _frame(b'{"progress":[1,2,"later"]}') * 1000)


@attempt("host-sound", "swamped", endings=("broken", "too_big"))
def say_nothing_many_times() -> None:
    while True:
        _write(bytes(4) * 10_000)


@attempt("host-sound", "confused", endings=("broken",))
def nest_deeper_than_the_stack() -> None:
    _leave(_frame(b'{"ok":' + b"[" * 90_000 + b"]" * 90_000 + b"}"))


@attempt("host-sound", "confused", endings=("broken",))
def nest_objects_deeper_than_the_stack() -> None:
    _leave(_frame(b'{"ok":' + b'{"a":' * 90_000 + b"1" + b"}" * 90_000 + b"}"))


@attempt("host-sound", "confused", endings=("broken", "refused"))
def nest_deeper_than_others_can_write() -> None:
    """Parses, but makes the next serializer fail."""
    _leave(_frame(b'{"ok":' + b"[" * 600 + b"]" * 600 + b"}"))


@attempt("host-sound", "stalled", endings=("ok",), output_bytes=8 << 20)
def say_a_million_small_numbers() -> None:
    """As many as an answer may hold: parsed in the event loop, they would stall every other call."""
    _leave(_frame(b'{"ok":[' + b"0.125," * 990_000 + b"0.125]}"))


@attempt("host-sound", "swamped", endings=("broken",))
def say_a_million_small_arrays() -> None:
    _leave(_frame(b'{"ok":[' + b"[]," * 330_000 + b"[]]}"))


@attempt("host-sound", "swamped", endings=("broken", "too_big"))
def hide_brackets_behind_escapes() -> None:
    """Escaped quotes: a counter that skips strings must recognise them."""
    _leave(_frame(b'{"a\\\\":[' + b"[]," * 330_000 + b"[]]}"))


@attempt("host-sound", "confused", endings=("broken",))
def say_a_number_without_end() -> None:
    _leave(_frame(b'{"ok":' + b"9" * 900_000 + b"}"))


@attempt("host-sound", "confused", endings=("broken", "refused"))
def say_infinity_as_a_number() -> None:
    _leave(_frame(b'{"ok":1e999}'))


@attempt("host-sound", "confused", endings=("broken",))
def say_not_a_number() -> None:
    _leave(_frame(b'{"ok":NaN}'))


@attempt("host-sound", "confused", endings=("broken", "refused"))
def say_half_of_a_character() -> None:
    _leave(_frame(b'{"ok":"\\ud800"}'))


@attempt("host-sound", "confused", endings=("broken", "refused"))
def say_a_name_with_half_of_a_character() -> None:
    _leave(_frame(b'{"ok":{"\\ud800":1}}'))


@attempt("host-sound", "confused", endings=("broken", "failed"))
def fail_with_half_of_a_character() -> None:
    _leave(_frame(b'{"failed":"\\ud800"}'))


@attempt("host-sound", "doubled", endings=("ok", "broken"))
def answer_twice() -> None:
    _leave(_frame(b'{"ok":"first"}') + _frame(b'{"ok":"second"}'))


@attempt("host-sound", "confused", endings=("broken",))
def answer_and_fail_at_once() -> None:
    """Two keys where one is allowed: which counts?"""
    _leave(_frame(b'{"ok":1,"failed":"2"}'))


@attempt("host-sound", "confused", endings=("broken",))
def greet_again_instead_of_answering() -> None:
    _leave(_frame(b'{"ready":true}'))


@attempt("host-sound", "confused", endings=("broken",))
def blame_the_sandbox() -> None:
    _leave(_frame(b'{"unprepared":"no landlock"}'))


@attempt("host-sound", "confused", endings=("died",))
def close_the_pipe_and_stay() -> None:
    os.close(_REPLY)
    os.close(3)
    time.sleep(60)


@attempt("host-sound", "hung", endings=("died", "raised"), deadline_s=3.0)
def leave_a_child_that_holds_the_pipe(mark: str) -> None:
    """The worker is gone; a host that reads until end of file waits for the child."""
    take_name(mark)
    if os.fork() == 0:
        os.setsid()
        time.sleep(60)
    os._exit(0)


@attempt("host-sound", "hung", endings=("died", "timed_out"), deadline_s=2.0)
def make_a_thread_leave_alone() -> None:
    """The main thread never answers; another keeps the process alive."""
    threading.Thread(target=time.sleep, args=(60,)).start()
    threading.Event().wait()


@attempt("host-sound", "swamped", endings=("timed_out", "died"), deadline_s=2.0)
def print_without_end() -> None:
    """To standard output and error; the control's are the host's own pipes."""
    while True:
        for stream in (1, 2):
            os.write(stream, b"x" * 65536)


class _Odd:
    """A value without JSON form that misbehaves on attribute access."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("x" * 100_000)


@attempt("host-sound", "confused", endings=("raised",))
def give_back_what_is_no_json() -> Any:
    return _Odd()


class _TooLong(Exception):
    """Class names may be long too."""


_TooLong.__name__ = "E" * 1_000_000


@attempt("host-sound", "confused", endings=("raised",))
def raise_with_a_giant_name() -> None:
    raise _TooLong


def sound() -> str:
    """An honest tool, to check whether the host still serves."""
    return "sound"
