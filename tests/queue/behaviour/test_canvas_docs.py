"""The examples of docs/canvas.md run as they stand there."""

import re
from pathlib import Path
from typing import Any

from tests.broker import EmbeddedBroker
from tests.queue.conftest import wait_until, working

TEXT = (Path(__file__).parents[3] / "docs" / "canvas.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


def test_every_example_gives_what_its_comment_says(broker_server: EmbeddedBroker) -> None:
    noted: list[Any] = []
    names: dict[str, Any] = {"URL": broker_server.url, "noted": noted}
    exec(BLOCKS[0], names)
    with names["app"] as app, working(app):
        for block in BLOCKS[1:]:
            for line in block.splitlines():
                code, _, comment = line.partition("#")
                if not re.match(r"[\w(]+.*\.get\(", code) or "=" in code.split("(")[0]:
                    exec(line, names)
                    continue
                value = eval(code, names)
                if re.match(r"\s*[\d\[]", comment):
                    assert str(value).strip("()") == comment.strip(), line
        wait_until(lambda: len(noted) == 2, "not all is noted")
    assert sorted(map(str, noted)) == ["('done',)", "(4, 'good')"]
