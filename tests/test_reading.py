"""No type that threads read is built by a thread: see blimp/reading.py."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# What several threads of a worker, a client, a page or a relay read.
PACKAGES = ("blimp/queue", "blimp/tasks", "blimp/link", "blimp/recording", "ground_station")
# Parameters of functions; a union's parts; what a lock guards; ready, and imported late.
BUILT_HERE = {"form", "kind", "cls", "hint", "Planned", "Ability", "Airframe"}
BUILDER = "get_class_annotations"  # of msgspec._utils: what it calls for each struct it builds

CHECK = f"""
import sys, importlib, msgspec
module, names = sys.argv[1], sys.argv[2:]
try:
    found = importlib.import_module(module)
except ModuleNotFoundError as error:
    if error.name != "django.tasks":  # of Django 6, which needs Python 3.12
        raise
    sys.exit()
built = []
for name in names:
    kind = eval(name, vars(found))
    def look(frame, event, argument):
        if event == "call" and frame.f_code.co_name == {BUILDER!r}:
            built.append(name)
    sys.setprofile(look)
    msgspec.json.Decoder(kind)
    sys.setprofile(None)
print(*sorted(set(built)))
"""


def read_types(path: Path) -> set[str]:
    """Return the types that a module passes to msgspec when it reads something."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        function = ast.unparse(node.func)
        if function == "msgspec.convert" and len(node.args) > 1:
            found.add(ast.unparse(node.args[1]))
        elif function.startswith("msgspec.") and function.endswith(".decode"):
            found |= {ast.unparse(one.value) for one in node.keywords if one.arg == "type"}
    return {name for name in found if name not in BUILT_HERE and "(" not in name}


READERS = {
    str(path.relative_to(ROOT)): found
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
    if (found := read_types(path))
}


def built_late(module: str, names: set[str], *, before: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-c", before + CHECK, module, *sorted(names)],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.mark.parametrize("path", READERS)
def test_what_threads_read_is_built_when_its_module_is_imported(path: str) -> None:
    module = path.removesuffix(".py").replace("/", ".")
    late = built_late(module, READERS[path])
    assert not late, f"{path}: {late} is built at its first use: see blimp/reading.py"


def test_a_type_that_is_built_late_would_be_found() -> None:
    unready = "import blimp.reading; blimp.reading.ready = lambda kind: kind\n"
    assert built_late("blimp.queue.protocol.read", {"_Headers"}, before=unready) == "_Headers"
