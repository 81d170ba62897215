"""Each neighbour of the queue's core has a page of docs, and an extra that there is."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROW = re.compile(
    r"^\| [^|]+ \| `(blimp/queue/[^`]+)/` \| ([^|]+) \| \[[^]]+\]\(([^)]+)\) \|$", re.M
)


def test_the_table_of_neighbours_names_each_with_its_extra_and_its_page() -> None:
    page = ROOT / "docs" / "queue.md"
    rows = ROW.findall(page.read_text("utf-8"))
    rooms = {
        one.parent.relative_to(ROOT).as_posix()
        for place in ("celery", "extras")
        for one in (ROOT / "blimp" / "queue" / place).glob("*/__init__.py")
    }
    assert {where for where, _, _ in rows} == rooms | {"blimp/queue/celery"}
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras = {extra for _, words, _ in rows for extra in re.findall(r"`(\w+)`", words)}
    assert extras <= metadata["project"]["optional-dependencies"].keys()
    headings = {line.lower().replace(" ", "-") for line in page.read_text("utf-8").splitlines()}
    for where, _, link in rows:
        if link.startswith("#"):
            assert f"##-{link[1:]}" in headings, (where, link)
        else:
            assert (ROOT / "docs" / link).exists(), (where, link)
