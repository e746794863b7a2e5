"""Attempts to connect to anything that listens, and to be connected to."""

import array
import contextlib
import ctypes
import os
import socket
import struct
import threading
import time

from .declare import attempt
from .system import take_name

_HELLO = b"hello from inside"


def _dns_question(name: bytes) -> bytes:
    labels = b"".join(bytes([len(part)]) + part for part in name.split(b"."))
    return struct.pack(">6H", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0\0\1\0\1"


# --- the internet protocols ----------------------------------------------------------------------


@attempt("net-closed", "connected")
def connect_to_loopback(port: int) -> None:
    socket.create_connection(("127.0.0.1", port), timeout=2).sendall(_HELLO)


@attempt("net-closed", "connected")
def connect_to_any_address(port: int) -> None:
    socket.create_connection(("0.0.0.0", port), timeout=2).sendall(_HELLO)


@attempt("net-closed", "connected", needs="IPv6")
def connect_to_loopback_of_version_6(port_6: int) -> None:
    socket.create_connection(("::1", port_6), timeout=2).sendall(_HELLO)


@attempt("net-closed", "connected", needs="IPv6")
def connect_to_mapped_address(port: int) -> None:
    socket.create_connection(("::ffff:127.0.0.1", port), timeout=2).sendall(_HELLO)


@attempt("net-closed", "connected")
def connect_while_sending(port: int) -> None:
    """TCP Fast Open: connects without connect()."""
    with socket.socket() as outward:
        outward.sendto(_HELLO, 0x20000000, ("127.0.0.1", port))


@attempt("net-closed", "connected", needs="MPTCP")
def connect_by_multipath(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) as outward:
        outward.connect(("127.0.0.1", port))
        outward.sendall(_HELLO)


@attempt("net-closed", "connected")
def send_datagram(udp_port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outward:
        outward.sendto(_HELLO, ("127.0.0.1", udp_port))


@attempt("net-closed", "connected")
def smuggle_in_a_name_lookup(udp_port: int) -> None:
    """DNS exfiltration: the queried name carries data."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outward:
        outward.connect(("127.0.0.1", udp_port))
        outward.send(_dns_question(b"stolen.example"))


@attempt("net-closed", "connected")
def listen_for_the_host(callback_port: int) -> str:
    """The host connects as soon as something listens."""
    with socket.create_server(("127.0.0.1", callback_port)) as server:
        server.settimeout(2)
        server.accept()[0].sendall(_HELLO)
    return "accepted"


@attempt("net-closed", "done", only_for="root")
def open_raw_socket() -> str:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()
    return "done"


@attempt("net-closed", "done", only_for="root", needs="packet sockets")
def open_packet_socket() -> str:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3).close()
    return "done"


@attempt("net-closed", "done")
def ask_netlink_for_interfaces() -> str:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as link:
        link.sendto(struct.pack("=IHHIIB", 20, 18, 0x301, 1, 0, 0) + bytes(3), (0, 0))
        return "done" if link.recv(65536) else "empty"


@attempt("net-closed", "done")
def list_interfaces() -> str:
    return "done" if socket.if_nameindex() else "empty"


@attempt("net-closed", "done", needs="vsock")
def open_vsock() -> str:
    """No network namespace covers vsock: it reaches the hypervisor."""
    socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).close()
    return "done"


@attempt("kernel-surface", "done", needs="sockets of the kernel's cryptography")
def open_crypto_socket() -> str:
    with socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET) as algorithm:
        algorithm.bind(("hash", "sha256"))
    return "done"


# --- unix sockets --------------------------------------------------------------------------------


@attempt("ipc-closed", "connected")
def connect_to_unix_path(unix_path: str) -> None:
    with socket.socket(socket.AF_UNIX) as outward:
        outward.connect(unix_path)
        outward.sendall(_HELLO)


@attempt("ipc-closed", "connected")
def connect_to_unix_path_in_the_granted_folder(granted_unix_path: str) -> None:
    with socket.socket(socket.AF_UNIX) as outward:
        outward.connect(granted_unix_path)
        outward.sendall(_HELLO)


@attempt("ipc-closed", "connected")
def connect_with_sequenced_packets(granted_packet_path: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as outward:
        outward.connect(granted_packet_path)
        outward.send(_HELLO)


@attempt("ipc-closed", "connected")
def connect_through_a_link(granted_unix_path: str, own_scratch: str) -> None:
    """From the scratch folder, where a program may have sockets, by a relative path."""
    os.chdir(own_scratch)
    os.symlink(granted_unix_path, "link")
    with socket.socket(socket.AF_UNIX) as outward:
        outward.connect("link")
        outward.sendall(_HELLO)


@attempt("ipc-closed", "connected")
def connect_to_unix_path_that_appears_later(late_unix_path: str) -> None:
    """The host begins to listen when a file appears beside it."""
    with open(f"{late_unix_path}-asked", "x"):
        pass
    end = time.monotonic() + 2
    while not os.path.exists(late_unix_path) and time.monotonic() < end:
        time.sleep(0.02)
    with socket.socket(socket.AF_UNIX) as outward:
        outward.connect(late_unix_path)
        outward.sendall(_HELLO)


@attempt("ipc-closed", "connected")
def swap_the_address_while_connecting(granted_unix_path: str, own_scratch: str) -> None:
    """Another thread changes the address, in the hope that another one is checked than is used (TOCTOU)."""
    libc = ctypes.CDLL(None)
    own = f"{own_scratch}/own"
    addresses = [
        (struct.pack("=H", socket.AF_UNIX) + path.encode()).ljust(110, b"\0")
        for path in (own, granted_unix_path)
    ]
    address = ctypes.create_string_buffer(addresses[0], 110)
    is_over = threading.Event()

    def swap() -> None:
        while not is_over.is_set():
            for one in addresses:
                ctypes.memmove(address, one, 110)

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(own)
        server.listen()
        swapping = threading.Thread(target=swap)
        swapping.start()
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            with socket.socket(socket.AF_UNIX) as outward:
                outward.settimeout(0)  # Nobody accepts its own connections.
                libc.connect(outward.fileno(), address, 110)
        is_over.set()
        swapping.join()


@attempt("ipc-closed", "connected")
def connect_to_abstract_name(abstract: str) -> None:
    with socket.socket(socket.AF_UNIX) as outward:
        outward.connect(f"\0{abstract}")
        outward.sendall(_HELLO)


@attempt("ipc-closed", "connected")
def send_datagram_to_unix_path(granted_datagram_path: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as outward:
        outward.sendto(_HELLO, granted_datagram_path)


@attempt("ipc-closed", "connected")
def send_from_a_datagram_pair(granted_datagram_path: str) -> None:
    """A socket pair needs neither socket() nor connect()."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with one, other:
        one.sendto(_HELLO, granted_datagram_path)


@attempt("ipc-closed", "connected")
def send_message_from_a_datagram_pair(granted_datagram_path: str) -> None:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with one, other:
        one.sendmsg([_HELLO], [], 0, granted_datagram_path)


@attempt("ipc-closed", "connected")
def pass_a_descriptor_to_the_host(granted_datagram_path: str, work: str) -> None:
    descriptor = os.open(work, os.O_RDONLY)
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as outward:
        outward.sendmsg([_HELLO], rights, 0, granted_datagram_path)


@attempt("ipc-closed", "connected")
def pass_a_descriptor_over_a_connection(granted_unix_path: str, work: str) -> None:
    descriptor = os.open(work, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as outward:
        outward.connect(granted_unix_path)
        socket.send_fds(outward, [_HELLO], [descriptor])


@attempt("ipc-closed", "connected")
def listen_on_abstract_name(callback_abstract: str) -> str:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{callback_abstract}")
        server.listen()
        server.settimeout(2)
        server.accept()[0].sendall(_HELLO)
    return "accepted"


@attempt("kernel-surface", "trapped")
def leave_a_bound_socket(work: str) -> None:
    os.chdir(work)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("left.sock")


@attempt("kernel-surface", "trapped")
def move_a_bound_socket(work: str, own_scratch: str) -> None:
    """Made where a program may have sockets, it would be one in the granted folder."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{own_scratch}/made.sock")
        with contextlib.suppress(OSError):
            os.link(f"{own_scratch}/made.sock", f"{work}/linked.sock")
        os.rename(f"{own_scratch}/made.sock", f"{work}/moved.sock")


# --- another call --------------------------------------------------------------------------------


@attempt("ipc-closed", "leaked")
def meet_another_call_on_loopback(meeting_port: int) -> str:
    """The concurrent call listens there, with a secret to send."""
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", meeting_port), timeout=1) as other,
        ):
            return other.recv(100).decode()
        time.sleep(0.02)
    return ""


def wait_on_loopback(meeting_port: int, text: str, mark: str) -> None:
    """The concurrent call, which listens."""
    take_name(mark)
    with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", meeting_port)) as server:
        server.settimeout(2)
        server.accept()[0].sendall(text.encode())
    time.sleep(0.5)
