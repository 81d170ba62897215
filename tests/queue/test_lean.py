"""redis-py is loaded without its clients for asyncio, and whoever wants them has them."""

import subprocess
import sys

import pytest

LOADED = "'redis.asyncio.client' in sys.modules"


def run(program: str) -> str:
    """Run it in a process that has loaded nothing yet; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{program}"], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_an_app_that_talks_to_a_broker_loads_no_client_for_asyncio(url: str) -> None:
    program = f"""
from blimp.queue import TaskApp
with TaskApp("lean", broker={url!r}) as app:
    app.send_task("nobody.has.it")
print({LOADED})
"""
    assert run(program) == "False"


@pytest.mark.parametrize(
    "use",
    [
        "client = redis.asyncio.Redis",
        "from redis import asyncio; client = asyncio.Redis",
        "import redis.asyncio; client = redis.asyncio.Redis",
        "import redis.asyncio as asyncio; client = asyncio.Redis",
        "from redis.asyncio import Redis as client",
        "import redis.asyncio.client; client = redis.asyncio.client.Redis",
        "from redis.asyncio.client import Redis as client",
        "import redis.commands.search; from redis.asyncio import Redis as client",
        "import redis.asyncio.observability; from redis.asyncio import Redis as client",
    ],
)
def test_whoever_wants_one_has_it(use: str) -> None:
    program = f"""
import redis
assert not {LOADED}
{use}
from redis import asyncio
from redis.asyncio.client import Redis
print(client is Redis is asyncio.Redis and redis.asyncio is sys.modules["redis.asyncio"])
"""
    assert run(program) == "True"


def test_what_it_has_not_is_an_attribute_error() -> None:
    program = """
import redis
print(hasattr(redis.asyncio, "nothing"), hasattr(redis.asyncio, "__wrapped__"))
"""
    assert run(program) == "False False"


def test_a_program_that_has_loaded_it_before_keeps_it() -> None:
    program = """
import redis as before
import redis
print(redis is before, before.asyncio is sys.modules["redis.asyncio"])
"""
    assert run(program) == "True True"
