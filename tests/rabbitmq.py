"""A real RabbitMQ of the tests' own, that ends with them, kill -9 included."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Self

from kombu import Connection

from blimp.errors import BlimpError
from blimp.processes import Child
from tests.broker import wait_for_answer
from tests.needs import not_run
from tests.redis_server import free_ports

# Debian's command in /usr/sbin changes the user; the one behind it runs as the user who asks.
DEBIAN = ("/usr/sbin/rabbitmq-server", "/usr/lib/rabbitmq/bin/rabbitmq-server")
# One for each process of pytest-xdist, under its `worker_id`.
VIRTUAL_HOSTS = ("master", *(f"gw{number}" for number in range(16)))
HOW = "on Debian: apt-get install rabbitmq-server openssl (it need not be running)"


def find_rabbitmq() -> str:
    """Return the server's command. For the head of a test module.

    Where there is none the module is skipped, and says how to get one; under CI it fails.
    """
    found = shutil.which("rabbitmq-server")
    if found in (None, DEBIAN[0]):
        found = shutil.which(DEBIAN[1]) or found
    if found is not None and shutil.which("epmd") and shutil.which("openssl"):
        return found
    raise not_run(f"no RabbitMQ here; {HOW}", module=True)


class RabbitMQ:
    """One node and the port mapper it needs, as ordinary processes on ports of their own.

    Start it from the main thread: the kernel takes the end of the starting thread for the
    end of the parent. Raises BlimpError with the node's last words if it does not start.
    virtual_host: of the URLs: one of `VIRTUAL_HOSTS`, which share nothing.
    A second one in a directory whose node another process started is a user of that node.
    """

    def __init__(
        self,
        *,
        directory: Path,
        command: str,
        virtual_host: str = "master",
        start_timeout_s: float = 240.0,
    ) -> None:
        self._directory = directory
        self._virtual_host = virtual_host
        self._command = command
        self._start_timeout_s = start_timeout_s
        self._children: list[Child] = []
        ports = directory / "ports"
        if not ports.exists():
            ports.write_text(json.dumps(free_ports(4)))
        self.port, self.tls_port, distribution_port, mapper_port = json.loads(ports.read_text())
        self.certificate = directory / "certificate.pem"
        self._mapper_port = str(mapper_port)
        self._environment = {
            "HOME": str(directory),  # of the cookie
            "RABBITMQ_NODENAME": "blimp@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(distribution_port),
            "RABBITMQ_MNESIA_BASE": str(directory),
            "RABBITMQ_LOG_BASE": str(directory),
            "RABBITMQ_LOGS": str(directory / "log"),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
            # Idle schedulers that spin take the processors from the tests.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none",
            "ERL_CRASH_DUMP": str(directory / "crash"),  # else where the tests were started
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": self._mapper_port,
            "RUNNING_UNDER_SYSTEMD": "1",  # the node in the place of its script, not below it
        }

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/{self._virtual_host}"

    @property
    def tls_url(self) -> str:
        return f"amqps://guest:guest@localhost:{self.tls_port}/{self._virtual_host}"

    def __enter__(self) -> Self:
        self._configure_tls()
        self._define_virtual_hosts()
        self._run("epmd", ["epmd", "-address", "127.0.0.1", "-port", self._mapper_port])
        node = self._run("rabbitmq", [self._command])
        wrong = wait_for_answer(node, answers=self._answers, within_s=self._start_timeout_s)
        if wrong:
            self.__exit__()
            raise BlimpError(f"RabbitMQ {wrong}: {self._last_words()}")
        return self

    def __exit__(self, *_: object) -> None:
        while self._children:
            self._children.pop().end(within_s=60.0)

    def _configure_tls(self) -> None:
        key = self._directory / "key.pem"
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-nodes", "-newkey", "rsa:2048"),
                *(
                    "-days",
                    "2",
                    "-subj",
                    "/CN=localhost",
                    "-addext",
                    "subjectAltName=DNS:localhost",
                ),
                *("-keyout", str(key), "-out", str(self.certificate)),
            ],
            check=True,
            capture_output=True,
        )
        (self._directory / "rabbitmq.conf").write_text(
            f"listeners.ssl.1 = 127.0.0.1:{self.tls_port}\n"
            f"ssl_options.certfile = {self.certificate}\n"
            f"ssl_options.keyfile = {key}\n"
            f"load_definitions = {self._directory}/definitions.json\n"
        )

    def _define_virtual_hosts(self) -> None:
        may = {"configure": ".*", "write": ".*", "read": ".*"}
        definitions = {
            "users": [{"name": "guest", "password": "guest", "tags": "administrator"}],
            "vhosts": [{"name": name} for name in VIRTUAL_HOSTS],
            "permissions": [{"user": "guest", "vhost": name} | may for name in VIRTUAL_HOSTS],
        }
        (self._directory / "definitions.json").write_text(json.dumps(definitions))

    def _run(self, name: str, arguments: list[str]) -> Child:
        child = Child(
            name=name,
            arguments=arguments,
            environment=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._children.append(child)
        return child

    def _answers(self) -> bool:
        connection = Connection(self.url, connect_timeout=30.0)
        try:
            connection.connect()
        except (OSError, *connection.connection_errors):
            return False
        finally:
            connection.release()
        return True

    def _last_words(self) -> str:
        try:
            lines = (self._directory / "log").read_text(errors="replace").splitlines()
        except OSError:
            return "it left no log"
        return " / ".join(lines[-5:])
