"""Subjects of NATS. A worker's account needs to publish and subscribe its own alone (docs/fleet.md)."""

from toolkeep.fleet.identity import PublicKey

ANNOUNCEMENTS = "tk.v1.hb.*"


def announcement(worker: PublicKey) -> str:
    """Where a worker announces itself."""
    return f"tk.v1.hb.{worker.token}"


def to_worker(worker: PublicKey) -> str:
    """From servers to one worker."""
    return f"tk.v1.job.{worker.token}"


def to_server(server: PublicKey, reply: str, worker: str) -> str:
    """From one worker to one connection of a server; `*` for all workers."""
    return f"tk.v1.ans.{server.token}.{reply}.{worker}"
