"""What documents name is there: links, files, decisions, make targets, messages, weights."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from blimp.airframe import load
from blimp.service.doctor import CHECKS
from tests.ground_station.page.pictures import NAMES, PICTURE_OF

ROOT = Path(__file__).parents[1]
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
LINK = re.compile(r"\]\(([^)#]+)[^)]*\)")
# From the root of the repository, without a placeholder such as <chip>.
FILE = re.compile(r"`((?:blimp|ground_station|tests|benchmarks|docs)/[\w./-]*)`")
MADE = re.compile(FILE.pattern + r"[^`]*:\s*```")  # by a recipe, of the block below
PICTURE = re.compile(r"\((?:docs/)?(?:\.\./)*pictures/([\w.-]+)\)")
# Of `blimp wiring`, and of `python -m tests.box.power_cuts --film`.
BY_HAND = {"wiring-twin.svg", "power-cut.cast"}
TARGET = re.compile(r"`make ([a-z-]+)")


def named(document: Path) -> str:
    return str(document.relative_to(ROOT))


def lines(path: Path, form: str) -> list[tuple[str, ...]]:
    """The groups of each line of a file that has this form."""
    return [one.groups() for one in re.finditer(form, path.read_text("utf-8"), re.MULTILINE)]


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_what_a_document_names_is_there(document: Path) -> None:
    text = document.read_text("utf-8")
    links = [one for one in LINK.findall(text) if not one.startswith("http")]
    assert [one for one in links if not (document.parent / one).exists()] == []
    files = set(FILE.findall(text)) - set(MADE.findall(text))
    assert [one for one in files if not (ROOT / one).exists()] == []
    targets = {target for (target,) in lines(ROOT / "Makefile", r"^([a-z-]+):")}
    assert set(TARGET.findall(text)) - targets == set()


def test_every_picture_is_shown_and_is_of_a_known_command() -> None:
    shown = {name for page in DOCUMENTS for name in PICTURE.findall(page.read_text("utf-8"))}
    kept = {file.name for file in (ROOT / "docs" / "pictures").iterdir() if file.is_file()}
    assert shown == kept == {*NAMES, *PICTURE_OF.values(), *BY_HAND}


def test_the_tables_of_the_architecture_name_files_that_are_there() -> None:
    """In a cell, what has no directory stands beside what was named before, or above it."""
    cells = lines(
        ROOT / "docs" / "architecture.md", r"^\| .* \| (`(?:blimp|ground_station)/.*) \|$"
    )
    assert len(cells) > 15
    for (cell,) in cells:
        first, *others = re.findall(r"`([\w./]+)`", cell)
        beside = (ROOT / first).parent
        for name in others:
            places = [ROOT / name, beside / name, beside.parent / name]
            assert any(place.exists() for place in places), (cell, name)


def test_every_decision_is_listed_with_its_number() -> None:
    directory = ROOT / "docs" / "decisions"
    listed = lines(directory / "README.md", r"^\| \[(\d+)\]\((.*?)\) \| ([^|]+) \| [^|]+ \|$")
    pages = {page.name for page in directory.glob("*.md")} - {"README.md"}
    assert {name for _, name, _ in listed} == pages
    for number, name, title in listed:
        assert (directory / name).read_text("utf-8").startswith(f"# {number}. {title}\n"), name


def test_the_captures_of_the_doctor_have_a_line_of_each_check_and_no_other() -> None:
    shown = lines(ROOT / "docs" / "pi.md", r"^    (?:ok|warning|error) {1,7}\b(.{14}) \S")
    assert {name.strip() for (name,) in shown} == {row.name for row in CHECKS}


def messages() -> Iterator[str]:
    """Yield each text of the product; what an f-string fills in is an ellipsis."""
    for package in ("blimp", "ground_station"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    yield "".join(
                        str(part.value) if isinstance(part, ast.Constant) else "…"
                        for part in node.values
                    )
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value


def test_the_troubleshooting_table_has_the_products_own_texts() -> None:
    text = (ROOT / "docs" / "pi.md").read_text("utf-8")
    table = text.partition("| it says |")[2].partition("\n\n")[0]
    shown = re.findall(r"^\| `(.*?)` \|", table, re.MULTILINE)
    assert len(shown) > 15
    product = "\n".join(messages())
    # A row may leave out the end of a message, or of one of its parts.
    forms = {one: "[^\n]*?".join(map(re.escape, one.split("…"))) for one in shown}
    assert [one for one, form in forms.items() if not re.search(form, product)] == []


def test_the_lift_budget_is_that_of_twins_file() -> None:
    mass = load("twin").mass
    weights_g = {item.name: 1e3 * item.mass_kg for item in mass.item}
    text = (ROOT / "docs" / "pi.md").read_text("utf-8")
    table = text.partition("## The lift budget")[2].partition("The ballast is")[0]
    rows = dict(re.findall(r"^\| ([a-z][a-z, -]+) \| ([\d.]+) \|$", table, re.MULTILINE))
    heavier_g = float(rows.pop("heavier than air by"))
    air_g = float(rows.pop("the air that the hull displaces"))
    found = {name for row in rows for name in row.split(", ")}
    assert found == set(weights_g)
    for row, weight_g in rows.items():
        total_g = sum(weights_g[name] for name in row.split(", "))
        assert abs(total_g - float(weight_g)) < 0.06, row
    assert heavier_g == pytest.approx(1e3 * mass.heaviness_kg)
    assert sum(weights_g.values()) - air_g == pytest.approx(heavier_g, abs=0.1)
