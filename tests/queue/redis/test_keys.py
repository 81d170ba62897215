"""What has keys of its own: no two of them may be taken for one."""

from blimp.queue.redis.keys import (
    Keys,
    began_key,
    digest_of,
    newest_key,
    pool_keys,
    revoked_key,
    worker_key,
)


def test_what_is_another_has_another_key() -> None:
    keys = Keys()
    families = [
        [began_key("a", 0), began_key("b", 0), began_key("a", 1), began_key("a", 0, 1)],
        [newest_key("q", "k"), newest_key("r", "k"), newest_key("q", "l")],
        [revoked_key("a"), revoked_key("b")],
        [worker_key("a", "w"), worker_key("b", "w"), worker_key("a", "v")],
        [keys.paused("a"), keys.paused("b")],
        [keys.sender("a"), keys.sender("b")],
        [keys.published("a"), keys.published("b")],
        [keys.once("q/2/1-1/1"), keys.once("q/2/1-1/2")],
        [keys.channel("a", database=0), keys.channel("a", database=1)],
        [digest_of(str(number)) for number in range(1000)],
        [*pool_keys("a").all(), *pool_keys("b").all()],
        [*keys.queue("q").all(), keys.queue("q").dead, *keys.queue("r").all()],
        [*Keys(prefix="other").queue("q").all(), *keys.queue("q").all()],
    ]
    for family in families:
        assert len(set(family)) == len(family), family
