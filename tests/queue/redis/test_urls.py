"""One server, two spellings; passwords stay out of what is printed."""

import pytest

from blimp.errors import ConfigError
from blimp.queue.redis.urls import check_url, hide_password, redis_url


@pytest.mark.parametrize(
    ("url", "redis"),
    [
        ("redis://host:6380/2", "redis://host:6380/2"),
        ("rediss://u:p@host/0", "rediss://u:p@host/0"),
        ("redis+socket:///run/b.sock?virtual_host=3", "unix:///run/b.sock?db=3"),
        ("redis+socket://:pw@/b.sock?virtual_host=/3", "unix://:pw@/b.sock?db=3"),
        ("redis+socket:///b.sock", "unix:///b.sock?db=0"),
        ("unix:///b.sock?db=1", "unix:///b.sock?db=1"),
    ],
)
def test_both_spellings(url: str, redis: str) -> None:
    assert redis_url(url) == redis


@pytest.mark.parametrize("url", ["amqp://host", "host:6379", "", "memory://"])
def test_an_unknown_scheme_names_those_there_are(url: str) -> None:
    with pytest.raises(ConfigError, match=r"its scheme must be one of .*redis\+socket"):
        check_url(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://me:secret@host:1/0", "redis://me:***@host:1/0"),
        ("redis://me:se:cr@et@host/0", "redis://me:***@host/0"),
        ("redis://me:se/cr?e#t@host/0", "redis://me:***@host/0"),
        ("unix://me:secret@/run/x.sock", "unix://me:***@/run/x.sock"),
        ("unix:///x.sock?db=0&password=secret", "unix:///x.sock?db=0&password=***"),
        ("redis://h/0?password=se#c@ret&db=1", "redis://h/0?password=***&db=1"),
        ("redis://me:secret@h/0?PASSWORD=secret", "redis://me:***@h/0?PASSWORD=***"),
        ("redis://me:secret", "redis://me:***"),
        ("redis://me:12/secret?x", "redis://me:12/secret?x"),
        ("redis://me:12secret/0", "redis://me:***"),
        ("redis://[::1]:6379/0", "redis://[::1]:6379/0"),
        ("redis+socket:///run/a:b@c.sock", "redis+socket:///run/a:b@c.sock"),
    ],
)
def test_a_password_is_hidden(url: str, shown: str) -> None:
    assert hide_password(url) == shown


def test_an_error_shows_no_password() -> None:
    with pytest.raises(ConfigError) as caught:
        check_url("amqp://me:secret@host")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis://me:secret@host:99999", "'redis://me:.*@host:99999': Port out of range 0-65535"),
        ("redis://me:secret@host:abc", "'redis://me:.*@host:abc': Port could not be cast"),
        ("redis://me:secret@[::1", "'redis://.*': Invalid IPv6 URL"),
    ],
)
def test_an_address_that_cannot_be_read_is_named_without_its_password(
    url: str, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        check_url(url)
    assert "secret" not in str(caught.value)
