"""The sockets that the page listens on, and how others call them."""

import contextlib
import errno
import os
import socket
import struct

from blimp.errors import ConfigError
from blimp.system import fcntl

SIOCGIFADDR = 0x8915  # netdevice(7): the IPv4 address of an interface
SEND_BUFFER_BYTES = 128 * 1024  # of the kernel, for each connection: a slow reader's backlog
WORDLESS_S = 5  # for which the kernel keeps a connection that has sent nothing to itself
MANY_FILES = 4096
# Of connections that wait to be accepted: with more than the kernel's limit, 4,096 by default, the
# kernel drops a connection's first packet, and its sender waits for a second.
BACKLOG = 4096


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens. Raises ConfigError, naming the address."""
    with contextlib.suppress(ImportError):  # Windows has no such limit
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < min(hard, MANY_FILES):  # many connections must not take the files of a command
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, MANY_FILES), hard))
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # on Windows it would share the port with a stranger
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        if hasattr(socket, "TCP_DEFER_ACCEPT"):  # Linux
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, WORDLESS_S)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        cure = "; --port takes another one, or 0 for any that is free"
        reason = f"{error.strerror}{cure if error.errno == errno.EADDRINUSE else ''}"
        raise ConfigError(f"the page cannot listen on {host}:{port}: {reason}") from None
    return listening


def shown_address(host: str) -> str:
    """Return the address that others reach a socket by that listens on `host`."""
    if host not in ("0.0.0.0", "::"):
        return f"[{host}]" if ":" in host else host
    return (reachable_addresses() or ["127.0.0.1"])[0]


def reachable_addresses() -> list[str]:
    """Return this machine's IPv4 addresses that others may reach; the one of the way out first.

    A machine with a cable and a hotspot has two, and a phone reaches the one of its own network.
    """
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, request)
            except OSError:  # it has none, or this is no Linux
                continue
            address = socket.inet_ntoa(answer[20:24])
            if not address.startswith("127."):
                found.append(address)
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent: it asks for the way there
            first = str(probe.getsockname()[0])
        except OSError:
            first = ""
    if first and not found:  # macOS and Windows ask for the others in other ways
        found = [first]
    return sorted(found, key=lambda address: address != first)


UNREACHABLE = (
    "no phone can reach it: this machine is in no network; join one, or open a hotspot, "
    "and start again"
)


def room_urls(url: str) -> list[str]:
    """Return an address for everybody in the room, as seen from each network of this machine.

    url: as shown, with the address that is likeliest. None without a network.
    """
    addresses = reachable_addresses()
    return [url.replace(f"//{addresses[0]}:", f"//{one}:") for one in addresses]


def room_words(url: str) -> list[str]:
    """Return what to say of a room's address: of those in other networks, or that it has none."""
    if not (urls := room_urls(url)):
        return [UNREACHABLE]
    return [f"from another network of this machine: {one}" for one in urls[1:]]
