"""What a broker's URL means: read once, for the check, the connection and the printed text.

Two readers of one URL can find two hosts in it, and then the check asks about one and the socket
is opened to the other. So nothing else of the project reads a broker's URL, nor does redis-py or
kombu: they are given the parts. What could be read in two ways is refused.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, unquote_plus

import msgspec

SOCKETS = ("redis+socket", "unix", "socket")  # three names of a Unix socket
SEVERAL = ("sentinel", "cluster")  # their URLs name nodes, of which one knows the master
REDIS_SCHEMES = ("redis", "rediss", "redis+socket", "unix", "valkey", "valkeys", *SEVERAL)
RABBIT_SCHEMES = ("amqp", "amqps", "pyamqp")
MEMORY = "memory"
TLS = ("rediss", "valkeys", "amqps")
LOCALHOST = "localhost"
MOST_REPLICAS = 10
LEAST_CONNECTIONS = 2
CHECKED = "required"  # of ssl_cert_reqs, and its default

_TAG = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_NAME = re.compile(
    r"(?=.{1,254}$)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?"
)  # RFC 1035, 2.3.4
_AUTHORITY = re.compile(r"[^/?]*")
_BLANK = re.compile(r"[\x00-\x20]")  # some readers leave them out
_UNSAFE = re.compile(r"[\x7f-\x9f\\]")  # some readers take a \ for a /


def _switch(text: str) -> bool:
    if text.lower() not in ("true", "false", "yes", "no", "1", "0"):
        raise ValueError("must be true or false")
    return text.lower() in ("true", "yes", "1")


def _one_of(*values: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in values:
            raise ValueError("is unknown")
        return text

    return read


def _connections(text: str) -> int:
    if not text.isdecimal() or int(text) < LEAST_CONNECTIONS:
        raise ValueError(f"must be {LEAST_CONNECTIONS} or more: one of them hears results")
    return int(text)


def _replicas(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_REPLICAS:
        raise ValueError(f"must be 1 to {MOST_REPLICAS}")
    return int(text)


_TLS_OPTIONS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("ssl_ca_certs", "ssl_certfile", "ssl_keyfile"), str),
    "ssl_cert_reqs": _one_of("required", "none"),
}
# What a URL may say after its "?", and how it is read. None of them can name another server.
_OPTIONS: dict[str, Callable[[str], Any]] = {
    "username": str,
    "password": str,
    "client_name": str,
    "socket_timeout": float,
    "socket_connect_timeout": float,
    "health_check_interval": int,
    "max_connections": _connections,
    "wait_replicas": _replicas,
}
_REDIS_TLS = _TLS_OPTIONS | {"ssl_check_hostname": _switch, "ssl_password": str, "ssl_ca_path": str}


def _options_of(scheme: str) -> dict[str, Callable[[str], Any]]:
    if scheme in (*RABBIT_SCHEMES, MEMORY):
        return _TLS_OPTIONS if scheme in TLS else {}
    own = {"db": str, "virtual_host": str} if scheme in SOCKETS else {"db": str}
    own = {} if scheme == "cluster" else own
    own |= {"master_name": str} if scheme == "sentinel" else {}
    return _OPTIONS | own | (_REDIS_TLS if scheme in TLS else {})


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of one URL, unquoted.

    hosts: each with its port, None if the URL names none; empty if there is no network.
    path: of the Unix socket. virtual_host: RabbitMQ's. database: Redis'.
    tag: the hash tag of every key in a cluster, with its braces; else "".
    options: what follows the "?", but for the user and the database.
    """

    scheme: str
    hosts: tuple[tuple[str, int | None], ...] = ()
    path: str = ""
    username: str | None = None
    password: str | None = None
    database: int = 0
    virtual_host: str = "/"
    tag: str = ""
    options: dict[str, Any] = {}

    def __repr__(self) -> str:  # its password is for the server alone
        return f"Address({self.scheme}://{self.shown_hosts or self.path})"

    @property
    def is_tls(self) -> bool:
        return self.scheme in TLS

    @property
    def is_of_this_machine(self) -> bool:
        """Whether it is reached without a network: by a Unix socket, or on loopback."""
        return all(_is_loopback(host) for host, _ in self.hosts)

    @property
    def checks_certificate(self) -> bool:
        """Whether the server must have a certificate of its own name."""
        named = self.options.get("ssl_check_hostname", True)
        return bool(self.options.get("ssl_cert_reqs", CHECKED) == CHECKED and named)

    @property
    def shown_hosts(self) -> str:
        return ",".join(_shown(host, port) for host, port in self.hosts)


def read_address(url: str) -> Address:
    """Read `url`. Raises ValueError saying why not, without any part of a password."""
    scheme, separator, rest = url.partition("://")
    known = (*REDIS_SCHEMES, *RABBIT_SCHEMES, MEMORY)
    if not separator or scheme not in (*known, "socket"):
        raise ValueError(f"its scheme must be one of {known}")
    if _BLANK.search(url):
        raise ValueError("a space or a control character: write %20 and so on")
    if "#" in url or ";" in url:
        raise ValueError("write the # ; of its password or path as %23 %3B")
    match = _AUTHORITY.match(rest)
    assert match is not None
    authority = match[0]
    path, _, query = rest[len(authority) :].partition("?")
    user, _, hosts = authority.rpartition("@")
    if _UNSAFE.search(hosts + path + query):
        raise ValueError("a backslash or a control character: write %5C and so on")
    if scheme not in SOCKETS and "@" in path + query:
        raise ValueError("write the @ / ? # of its password as %40 %2F %3F %23")
    given = _read_options(query, _options_of(scheme))
    name, colon, secret = user.partition(":")
    username = _said_once("username", unquote(name) or None, given.pop("username", None))
    password = _said_once("password", unquote(secret) if colon else None, given.pop("password", ""))
    address = Address(scheme=scheme, username=username, password=password, options=given)
    if scheme in SOCKETS:
        if hosts or not path.startswith("/") or path.endswith("/") or "\0" in unquote(path):
            raise ValueError("the path of a socket begins with a /, as in unix:///run/x.sock")
        named = given.pop("virtual_host", "").removeprefix("/")  # kombu writes it with or without
        wanted = _said_once("database", given.pop("db", None), named)
        path = unquote(path)
        return msgspec.structs.replace(address, path=path, database=_database(wanted))
    if scheme == MEMORY:
        return address
    address = msgspec.structs.replace(address, hosts=_read_hosts(hosts, several=scheme in SEVERAL))
    if scheme in RABBIT_SCHEMES:
        return msgspec.structs.replace(address, virtual_host=unquote(path.removeprefix("/")) or "/")
    place = path.removeprefix("/")
    if scheme == "cluster":
        if not _TAG.fullmatch(place):
            raise ValueError(
                "a cluster's path is the hash tag of its keys, 1 to 64 of letters, digits, _ . and "
                "-, as in cluster://host:6379/weather"
            )
        return msgspec.structs.replace(address, tag=f"{{{place}}}")
    name, _, last = place.rpartition("/")
    if scheme == "sentinel" and name:  # sentinel://host/SERVICE/0
        place = last
        given["master_name"] = _said_once("master", unquote(name), given.get("master_name"))
    wanted = _said_once("database", place, given.pop("db", None))
    return msgspec.structs.replace(address, database=_database(wanted))


def _said_once(what: str, first: str | None, second: str | None) -> str | None:
    if first and second and first != second:
        raise ValueError(f"it names two {what}s")
    return first or second or None


def _database(text: str | None) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text or "0"):
        raise ValueError("its database is not a number; write redis://host/0")
    return int(text or 0)


def _read_options(query: str, known: dict[str, Callable[[str], Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in query.split("&") if query else ():
        name, _, text = part.partition("=")  # the name is not unquoted: it is as the table has it
        value = unquote_plus(text)
        shown = "***" if "password" in unquote(name).lower() else value
        if name not in known:
            raise ValueError(f"option {name}={shown} is unknown; there are: {', '.join(known)}")
        if name in found:
            raise ValueError(f"option {name} is given twice")
        try:
            found[name] = known[name](value)
        except ValueError as error:
            why = str(error) if str(error).startswith(("is ", "must ")) else "is no number"
            raise ValueError(f"option {name}={shown} {why}") from None
    return found


def _read_hosts(text: str, *, several: bool) -> tuple[tuple[str, int | None], ...]:
    return tuple(_read_host(one) for one in (text.split(",") if several else (text,)))


def _read_host(text: str) -> tuple[str, int | None]:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        host = host.replace("%25", "%", 1)  # RFC 6874: how a URL writes the % before a zone
        try:
            if not bracket:
                raise ValueError
            ipaddress.IPv6Address(host.partition("%")[0])
        except ValueError:
            raise ValueError("Invalid IPv6 URL") from None
        if "%" in host and not re.fullmatch(r"(?i)fe80:[0-9a-f:.]*%[a-z0-9_.-]{1,15}", host):
            raise ValueError("only a link-local IPv6 address has a zone, as in [fe80::1%eth0]")
        if rest and not rest.startswith(":"):
            raise ValueError("Invalid IPv6 URL")
        return host.lower() if "%" not in host else host, _port(rest.removeprefix(":"))
    host, _, port = text.partition(":")
    if host and not _NAME.fullmatch(host):
        raise ValueError("its host is neither an address nor a name of letters, digits, . and -")
    return host.lower() or LOCALHOST, _port(port)


def _port(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()):
        raise ValueError("Port could not be cast to integer value: its port or its host is wrong")
    if not 1 <= int(text[:9]) <= 65535:
        raise ValueError("Port out of range 0-65535" if int(text[:9]) else "Port 0 is no port")
    return int(text)


def _shown(host: str, port: int | None) -> str:
    name = f"[{host}]" if ":" in host else host
    return name if port is None else f"{name}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        return host == LOCALHOST or ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, or an address in a spelling that only getaddrinfo(3) knows
        return False
