"""A network link with delay and loss between two network namespaces, through two TUN devices.

    python -m tests.fleet.slow_link NAMESPACE NUMBER DELAY_MS LOSS

Joins this namespace (10.9.NUMBER.1) with another one (10.9.NUMBER.2), made with `ip netns add`. Many small
kernels have no netem. Says `up` when it works; then reads lines: `cut`, `heal`. Ends with its standard input.
"""

import ctypes
import errno
import fcntl
import heapq
import itertools
import os
import random
import select
import struct
import subprocess
import sys
import time

_LIBC = ctypes.CDLL(None, use_errno=True)
_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_CLONE_NEWNET = 0x40000000
_AT_ONCE = 64


def _enter(descriptor: int) -> None:
    if _LIBC.setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def make_device(name: str, own: str, peer: str) -> int:
    """A TUN device of the current namespace, up, with an address."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
    for words in (("addr", "add", own, "peer", peer, "dev", name), ("link", "set", name, "up")):
        subprocess.run(["ip", *words], check=True)
    return device


def main(namespace: str, number: str, delay_ms: str, loss: str) -> None:
    """Carry packets until standard input ends."""
    near, far = f"10.9.{number}.1", f"10.9.{number}.2"
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    here = make_device(f"near{number}", near, far)
    _enter(os.open(f"/run/netns/{namespace}", os.O_RDONLY))
    there = make_device(f"far{number}", far, near)
    _enter(home)
    print("up", flush=True)
    carry(here, there, float(delay_ms) / 1000, float(loss))


def carry(here: int, there: int, delay_s: float, loss: float) -> None:
    """Each packet to the other side, late or never."""
    under_way: list[tuple[float, int, int, bytes]] = []
    numbers, chance, is_cut = itertools.count(), random.Random(1), False  # noqa: S311 -- no secret
    while True:
        now = time.monotonic()
        while under_way and under_way[0][0] <= now:
            _, _, to, packet = heapq.heappop(under_way)
            try:
                os.write(to, packet)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.ENOBUFS, errno.EIO, errno.EINVAL):
                    raise
        patience = max(0.0, under_way[0][0] - now) if under_way else None
        for ready in select.select([0, here, there], [], [], patience)[0]:
            if ready == 0:
                words = os.read(0, 100).decode().split()
                if not words:
                    return
                is_cut = words[-1] == "cut"
                continue
            for _ in range(_AT_ONCE):
                try:
                    packet = os.read(ready, 65_536)
                except BlockingIOError:
                    break
                if not is_cut and chance.random() >= loss:
                    to = there if ready == here else here
                    heapq.heappush(under_way, (time.monotonic() + delay_s, next(numbers), to, packet))


if __name__ == "__main__":
    main(*sys.argv[1:5])
