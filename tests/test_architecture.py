"""The shape of the source: no import circle, no file name twice, no word of the old language."""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
QUEUE = ROOT / "blimp" / "queue"

# The old private language: word -> what the project says instead (see docs/architecture.md).
FORBIDDEN = {
    "hand": "in flight", "hands": "passes", "handed": "passed",
    "ear": "broadcast connection", "ears": "broadcast connections",
    "desk": "command handler", "crew": "worker pools",
    "settler": "acker", "owed": "deferred acknowledgements", "verdict": "outcome",
    "bury": "dead-letter", "buried": "dead-lettered", "keeper": "backend", "keepers": "backends",
    "told": "sent", "whoever": "the caller, the worker, ...", "anew": "again",
    "deadly": "over the delivery limit", "parcel": "envelope", "lane": "priority stream",
    "lanes": "priority streams", "lookahead": "prefetch", "away": "unreachable",
    "spent": "used, over its limit",
}  # fmt: skip
# Real English, or the field's own use.
ALLOWED = {
    "by hand", "on the other hand", "hand over", "hand-written", "right-handed",
    "handed over", "hand-over", "left-handed", "m away", "kPa away", "fly away", "flies away",
    "flown away", "floats away", "goes away", "moves away", "polled away", "running away",
    "sends the rest away", "take away", "take it away", "taken away",
}  # fmt: skip


ROOMS = ("blimp", "ground_station", "benchmarks", "tests")


def modules(room: Path) -> dict[str, Path]:
    """Return every module of a directory with its file, packages by their own name."""
    found = {}
    for path in sorted(room.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(tree: ast.AST, known: dict[str, Path]) -> Iterator[str]:
    """Yield the known modules that a file imports, anywhere in it and for types only, too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in known else node.module for name in inner]
        else:
            continue
        yield from (name for name in names if name in known)


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one module (Tarjan)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in order:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], order[other])
        if low[node] == order[node]:
            circle = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(circle) > 1:
                found.append(sorted(circle))

    for node in sorted(graph):
        if node not in order:
            visit(node)
    return found


def test_no_circle_of_imports() -> None:
    known = {name: path for room in ROOMS for name, path in modules(ROOT / room).items()}
    graph = {
        name: set(imports(ast.parse(path.read_text("utf-8")), known)) - {name}
        for name, path in known.items()
    }
    assert circles(graph) == []


def test_a_circle_would_be_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}
    assert circles(graph) == [["b", "c"]]


def test_an_import_is_found_wherever_it_stands() -> None:
    """In a function, for types only, and of a name in a package."""
    text = """
if TYPE_CHECKING:
    from p.typed import Name
def call():
    import p.lazy
    from p import part, NAME
"""
    known = dict.fromkeys(["p", "p.typed", "p.lazy", "p.part", "p.other"], ROOT)
    assert set(imports(ast.parse(text), known)) == {"p", "p.typed", "p.lazy", "p.part"}


def test_four_places_open_a_connection_to_a_ship() -> None:
    """Its one client, stops and photographs, and whether an unheard ship is there."""
    opens = re.compile(r"\bVehicleClient\(|\b_?(?:session|self)\.client\(")
    found = {
        path.name: len(opens.findall(path.read_text("utf-8")))
        for path in (ROOT / "ground_station").rglob("*.py")
    }
    assert {name: count for name, count in found.items() if count} == {
        "ship_on_broker.py": 1,
        "every_ship.py": 1,
        "session.py": 3,  # that of photographs, and the function that makes it
    }


# Names of public classes that stand in several files, and in how many if more than two: the list
# may only shrink. A chip's driver and its simulated twin have one name on purpose.
SAME_NAME = """
    Action Arm Asked Authority Barometer Bmp280 Bmp388 Bmp390 Bno055 Board Bounds Bridge
    Calibration:4 Cell Channel:3 Chip Clock Command:3 Commands Computer Crsf Demand Device
    Done Drv8833 L293D Dwm1001 Entry Envelope EscPwm Fault:3 Figures Finding Fleet:3 Found Frame:3
    FrameReader:3 Goto GpsNmea GpsUbx Ground HcSr04 Heartbeat Hold I2CBus Icm20948 Ids Ina219
    Ina226 Ina260 Item Job Kept Keys Land Leg Limits:3 Loop Mailbox Mocap Mpu6050 Ms5607
    Ms5611 Options:17 Outcome:3 Parameter Payload Pca9685 Pilot Place:3 Plan Pmw3901
    PowerMonitor Progress:3 Question Rate Reader Receiver Refused Report Row:5 Sbus Seen:3
    Sender Sensor:3 Server:3 Servo Session:3 SetGeofence Settings Ship:4 SoftTimeLimitExceeded
    Source:3 Stamps State:3 Sticks Stops Story Table Takeoff Tb6612 TfLuna Ticket Timed Timeline
    Transmitter Transport Truth Velocity Vl53L1X
"""


def test_a_name_means_one_thing() -> None:
    """A new class has a name of its own, in the ship's code and the ground's."""
    words = (word.partition(":") for word in SAME_NAME.split())
    standing = {name: int(count or 2) for name, _, count in words}
    found = Counter(
        node.name
        for room in ("blimp", "ground_station")
        for path in (ROOT / room).rglob("*.py")
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    grown = {name: count for name, count in found.items() if count > standing.get(name, 1)}
    assert not grown, "give the new class a name of its own"


def test_the_worker_knows_no_extension() -> None:
    """What it calls of canvases stands in blimp/queue/extensions.py."""
    rooms = "canvas|celery|extras|broadcast|cli"
    name = re.compile(rf"blimp\.queue\.({rooms})\b")
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in sorted((QUEUE / "worker").rglob("*.py"))
        for match in name.finditer(path.read_text("utf-8"))
    ]
    assert found == []


def test_no_file_name_is_there_twice_in_the_queue() -> None:
    names = Counter(path.name for path in QUEUE.rglob("*.py") if path.name != "__init__.py")
    names += Counter(path.name for path in QUEUE.rglob("*.lua"))
    assert [name for name, count in names.items() if count > 1] == []


def test_no_word_of_the_old_language_is_left() -> None:
    def any_of(words: Iterable[str]) -> re.Pattern[str]:  # as parts of a name, too
        return re.compile(rf"(?<![a-z])({'|'.join(words)})(?![a-z])", re.IGNORECASE)

    word, allowed = any_of(FORBIDDEN), any_of(one.replace(" ", "[ _]") for one in ALLOWED)
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match.group()}"
        for path in sources()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        for match in word.finditer(allowed.sub("", line))
    ]
    assert found == []


def test_no_command_line_breaks_where_a_path_has_a_space() -> None:
    """A text with a path in it is not split at spaces: a clone may lie at such a path."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for package in ROOMS
        for path in sorted((ROOT / package).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and node.attr == "split"
        and isinstance(node.value, ast.JoinedStr)
    ]
    assert not found, f"give a list of arguments instead: {found}"


def test_each_test_of_the_queue_is_named_for_its_source() -> None:
    """`test_<source>.py` or `test_<source>_<topic>.py`; what crosses rooms is in behaviour/."""
    tests = ROOT / "tests" / "queue"
    stray = [
        path.relative_to(ROOT).as_posix()
        for path in sorted(tests.rglob("test_*.py"))
        if "behaviour" not in path.parts
        and not any(
            f"{path.stem}_".startswith(f"test_{source.stem}_")
            for source in (QUEUE / path.parent.relative_to(tests)).glob("*.*")
        )
    ]
    assert stray == []


def test_each_module_of_the_queue_has_a_test() -> None:
    """`test_<module>….py`, or the file that its docstring names; one without code needs none."""
    tests = ROOT / "tests"
    known = [path.relative_to(tests).as_posix() for path in tests.rglob("test_*.py")]
    untested = []
    for path in modules(QUEUE).values():
        tree = ast.parse(path.read_text("utf-8"))
        words = re.search(r"Tested by (\S+)\.$", ast.get_docstring(tree) or "", re.MULTILINE)
        own = f"queue/{path.parent.relative_to(QUEUE).as_posix()}/test_{path.stem}".replace(
            "/./", "/"
        )
        found = [
            name
            for name in known
            if re.match(rf"{own}(_\w+)?\.py$", name)
            or (words is not None and f"/{name}".endswith(f"/{words.group(1)}"))
        ]
        if len(tree.body) > 1 and not found:
            untested.append(path.relative_to(QUEUE).as_posix())
    assert untested == []


def test_the_files_on_the_way_of_a_message_are_there() -> None:
    """The table of docs/architecture.md names them from `blimp/queue/`."""
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    table = text.partition("| step | thread | files |")[2].partition("\n\n")[0]
    names = re.findall(r"`([\w/]+\.(?:py|lua))`", table)
    assert len(names) > 15
    assert [name for name in names if not (QUEUE / name).exists()] == []


def sources() -> Iterator[Path]:
    """Yield the files that must be free of the old language."""
    for room in ROOMS:
        for ending in ("py", "lua"):
            yield from sorted(set(ROOT.glob(f"{room}/**/*.{ending}")) - {Path(__file__)})
    yield from sorted(ROOT.glob("docs/*.md"))
    yield from sorted(ROOT.glob("docs/decisions/[0-9]*.md"))
    yield from (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))


def test_each_constant_of_the_control_says_what_it_is() -> None:
    """In a comment: with its source, or without one if it was chosen."""
    bare: list[str] = []
    rooms = (ROOT / "blimp" / room for room in ("control", "wires"))
    for path in sorted(path for room in rooms for path in room.rglob("*.py")):
        lines = path.read_text("utf-8").splitlines()
        for node in ast.parse("\n".join(lines)).body:
            if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                continue
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            is_constant = isinstance(target, ast.Name) and target.id.isupper()
            numbers = [n for n in ast.walk(node.value) if isinstance(n, ast.Constant)]
            has_number = any(type(one.value) in (int, float) for one in numbers)
            own = lines[node.lineno - 1 : node.end_lineno]
            above = lines[node.lineno - 2].startswith("#")
            if is_constant and has_number and not above and "#" not in " ".join(own):
                bare.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert bare == []
