"""An S3 server on this machine, and a gate before it that can be shut while programs use it."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from heatproof.runs import storage


def free_port() -> int:
    """A port of loopback that nobody listens to."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def keys(port: int) -> dict[str, str]:
    """The environment of a client of an S3 server at a port."""
    return {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@contextmanager
def s3_server(said: Path) -> Iterator[int]:
    """The port of an S3 server with the bucket `heatproof`; what it says goes to a file."""
    for name in ("moto", "flask", "s3fs"):
        pytest.importorskip(name, reason="needs moto[server] and s3fs for an S3 server on loopback")
    port = free_port()
    with said.open("wb") as log:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        server = subprocess.Popen(command, stdout=log, stderr=log)
    make = "import boto3; boto3.client('s3').create_bucket(Bucket='heatproof')"
    try:
        until = time.monotonic() + 120
        while not _listens(port):
            assert server.poll() is None and time.monotonic() < until, said.read_text()
            time.sleep(0.05)
        subprocess.run([sys.executable, "-c", make], env=keys(port), check=True)
        sys.modules[
            "s3fs"
        ].S3FileSystem.clear_instance_cache()  # those of another server, which is gone
        storage._connect.cache_clear()
        yield port
    finally:
        server.kill()
        server.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Gate:
    """A port that leads to another one while it is open; shut, it turns everybody away and counts them."""

    def __init__(self, port: int, beyond: int) -> None:
        self.beyond, self.turned_away, self._open = beyond, 0, True
        self._inside: list[socket.socket] = []
        self._door = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._stand, daemon=True).start()

    def open(self) -> None:
        """Let everybody through."""
        self._open = True

    def shut(self) -> None:
        """Cut off whoever is inside, and let nobody through."""
        self._open = False
        for end in self._inside:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _stand(self) -> None:
        while True:
            guest, _ = self._door.accept()
            if not self._open:
                self.turned_away += 1
                guest.close()
                continue
            host = socket.create_connection(("127.0.0.1", self.beyond))
            self._inside += [guest, host]
            for ends in ((guest, host), (host, guest)):
                threading.Thread(target=_pass_on, args=ends, daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while content := source.recv(65536):
            target.sendall(content)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
