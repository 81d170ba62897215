"""No type that threads read is built by a thread: see blimp/reading.py."""

import ast
import json
import sys
from pathlib import Path

from tests.forked import ran

ROOT = Path(__file__).parent.parent
# What several threads of a worker, a client, a page or a relay read.
PACKAGES = ("blimp/queue", "blimp/tasks", "blimp/link", "blimp/recording", "ground_station")
# Parameters of functions; a union's parts; what a lock guards; ready, and imported late.
BUILT_HERE = {"form", "kind", "cls", "hint", "Planned", "Ability", "Airframe"}
LIBRARIES = (
    "kombu",
    "mcap.writer",
    "numpy",
    "redis",
    "sqlalchemy",
    "starlette",
    "typer",
    "uvicorn",
)
BUILDER = "get_class_annotations"  # of msgspec._utils: what it calls for each struct it builds

# Forks for each module, so that none is imported by another's check; libraries are in before.
CHECK = f"""
import contextlib, importlib, json, multiprocessing, sys, msgspec
for library in {LIBRARIES!r}:
    with contextlib.suppress(ImportError):
        importlib.import_module(library)

def built_late(module, names):
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != "django.tasks":  # of Django 6, which needs Python 3.12
            raise
        return []
    built = []
    for name in names:
        kind = eval(name, vars(found))
        def look(frame, event, argument):
            if event == "call" and frame.f_code.co_name == {BUILDER!r}:
                built.append(name)
        sys.setprofile(look)
        msgspec.json.Decoder(kind)
        sys.setprofile(None)
    return sorted(set(built))

with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
    print(json.dumps(pool.starmap(built_late, json.load(sys.stdin), chunksize=1)))
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


def built_late(readers: dict[str, set[str]], *, before: str = "") -> dict[str, list[str]]:
    """Return the types that each module leaves to be built at their first use, if any."""
    modules = {path.removesuffix(".py").replace("/", "."): readers[path] for path in readers}
    done = ran(
        [sys.executable, "-c", before + CHECK],
        input=json.dumps([(module, sorted(names)) for module, names in modules.items()]),
        check=True,
        cwd=ROOT,
    )
    found = dict(zip(modules, json.loads(done.stdout), strict=True))
    return {module: late for module, late in found.items() if late}


def test_what_threads_read_is_built_when_its_module_is_imported() -> None:
    assert built_late(READERS) == {}, "built at their first use: see blimp/reading.py"


def test_a_type_that_is_built_late_would_be_found() -> None:
    unready = "import blimp.reading; blimp.reading.ready = lambda kind: kind\n"
    module = "blimp.queue.protocol.read"
    assert built_late({module: {"_Headers"}}, before=unready) == {module: ["_Headers"]}
