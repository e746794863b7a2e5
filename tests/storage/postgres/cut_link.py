"""A link to a server that can be cut at a chosen moment: after a request arrived there, before its answer
comes back."""

import contextlib
import socket
import threading
from collections.abc import Iterator


class CutLink:
    """Carries bytes between clients and a server on 127.0.0.1."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets = [self._listener]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        self.port: int = self._listener.getsockname()[1]
        self.cut_after: bytes = b""
        """A request with these bytes is delivered; its answer and the connection are lost."""
        self.cuts = 0

    def close(self) -> None:
        """End every connection, and wait for that."""
        for one in list(self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join()
        for one in self._sockets:
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
                self._sockets += [client, server]
                lost = threading.Event()
                for carry in (self._requests, self._answers):
                    thread = threading.Thread(target=carry, args=(client, server, lost))
                    self._threads.append(thread)
                    thread.start()

    def _requests(self, client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if self.cut_after and self.cut_after in data:
                    self.cut_after = b""
                    self.cuts += 1
                    lost.set()
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    @staticmethod
    def _answers(client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while (data := server.recv(65536)) and not lost.is_set():
                client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def cut_link(port: int) -> Iterator[CutLink]:
    """A link that lasts as long as a test."""
    link = CutLink(port)
    try:
        yield link
    finally:
        link.close()
