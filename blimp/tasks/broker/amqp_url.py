"""RabbitMQ's URLs: `amqp://user:password@host:port/vhost`, and `amqps://` over TLS."""

from __future__ import annotations

import ssl
from typing import Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from blimp.errors import ConfigError
from blimp.tasks.broker.urls import hide_password

CHECKS = {"required": ssl.CERT_REQUIRED, "none": ssl.CERT_NONE}


def part_tls(url: str) -> tuple[str, dict[str, Any]]:
    """Return `url` without its TLS options, and those as py-amqp takes them; none for `amqp://`.

    They are written as for `rediss://`: ssl_ca_certs, ssl_certfile, ssl_keyfile. The server's
    certificate is checked, which py-amqp would not do, unless ssl_cert_reqs=none.
    Raises ConfigError for another option.
    """
    parts = urlsplit(url)
    if parts.scheme != "amqps":
        return url, {}
    tls: dict[str, Any] = {"server_hostname": parts.hostname, "cert_reqs": ssl.CERT_REQUIRED}
    for name, value in parse_qsl(parts.query):
        if name == "ssl_cert_reqs" and value in CHECKS:
            tls["cert_reqs"] = CHECKS[value]
        elif name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile"):
            tls[name.removeprefix("ssl_")] = value
        else:
            raise ConfigError(
                f"broker URL {hide_password(url)!r}: option {name}={value} is unknown"
            )
    if tls["cert_reqs"] == ssl.CERT_NONE:
        del tls["server_hostname"]
    return urlunsplit(parts._replace(query="")), tls
