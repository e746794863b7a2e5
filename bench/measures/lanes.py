"""Connections and pipes with no more work than it takes, so that the server is what is measured.

Plain blocking calls: requests are made before, an answer is looked at only to see that it is whole and right.
"""

import os
import select
import socket
import time
from collections.abc import Callable, Sequence

Check = Callable[[int, bytes], None]
"""Raises where an answer is not the one to the request of a number."""

_READ = 1 << 20


class Lane:
    """One HTTP connection, one answer at a time."""

    def __init__(self, port: int, address: str = "127.0.0.1") -> None:
        self._socket = socket.create_connection((address, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._held = b""

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, request: bytes) -> None:
        self._socket.sendall(request)

    def receive(self) -> bytes | None:
        """The body of the answer, if it is whole now; waits for some more of it."""
        data = self._socket.recv(_READ)
        if not data:
            raise ConnectionError("the server closed a connection")
        self._held += data
        head, mark, body = self._held.partition(b"\r\n\r\n")
        if not mark or not _is_whole(head, body):
            return None
        self._held = b""
        return body

    def exchange(self, request: bytes) -> bytes:
        self.send(request)
        while (answer := self.receive()) is None:
            pass
        return answer

    def close(self) -> None:
        self._socket.close()


def _is_whole(head: bytes, body: bytes) -> bool:
    lowered = head.lower()
    length = lowered.partition(b"content-length:")[2]
    if length:
        return len(body) >= int(length.partition(b"\r\n")[0])
    return body.endswith(b"0\r\n\r\n")


def drive(lanes: Sequence[Lane], requests: Sequence[bytes], check: Check) -> list[float]:
    """Have requests answered, one at a time on each lane; the seconds that each took."""
    return _one_by_one(lanes[0], requests, check) if len(lanes) == 1 else _together(lanes, requests, check)


def _one_by_one(lane: Lane, requests: Sequence[bytes], check: Check) -> list[float]:
    times = []
    for number, request in enumerate(requests):
        began = time.perf_counter()
        answer = lane.exchange(request)
        times.append(time.perf_counter() - began)
        check(number, answer)
    return times


def _together(lanes: Sequence[Lane], requests: Sequence[bytes], check: Check) -> list[float]:
    by_file = {lane.fileno(): lane for lane in lanes}
    sent: dict[int, tuple[int, float]] = {}
    times: list[float] = []
    upcoming = iter(enumerate(requests))
    ready = select.poll()

    def send(file: int) -> None:
        following = next(upcoming, None)
        if following is not None:
            sent[file] = following[0], time.perf_counter()
            by_file[file].send(following[1])

    for file in by_file:
        ready.register(file, select.POLLIN)
        send(file)
    while len(times) < len(requests):
        for file, _ in ready.poll():
            answer = by_file[file].receive()
            if answer is not None:
                number, began = sent.pop(file)
                times.append(time.perf_counter() - began)
                check(number, answer)
                send(file)
    return times


class Pipes:
    """The two pipes of a server that speaks a message a line."""

    def __init__(self, into: int, out_of: int) -> None:
        self._into, self._out_of = into, out_of
        self._held = b""

    def send(self, line: bytes) -> None:
        while line:
            line = line[os.write(self._into, line) :]

    def lines(self) -> list[bytes]:
        """The lines that are whole; waits for one."""
        while b"\n" not in self._held:
            data = os.read(self._out_of, _READ)
            if not data:
                raise ConnectionError("the server closed its output")
            self._held += data
        *whole, self._held = self._held.split(b"\n")
        return whole
