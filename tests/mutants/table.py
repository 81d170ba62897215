"""The rows of `tests/mutants/*.toml`: which line is broken, how, and what promise it guards."""

from pathlib import Path

import msgspec

PROJECT = Path(__file__).resolve().parents[2]


class Mutant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One change to one place of one file, after which a promise does not hold.

    line: text that stands exactly once in the file; broken: what stands there instead. tests: what
    pytest runs, files or node ids; by default the tests that mirror the file.
    """

    promise: str
    file: str
    line: str
    broken: str
    tests: tuple[str, ...] = ()

    def break_in(self, root: Path) -> str:
        """Write the broken file below `root`; return the text that was there."""
        path = root / self.file
        text = path.read_text()
        if (found := text.count(self.line)) != 1:
            raise ValueError(f"{self.file}: {self.line!r} stands there {found} times, not once")
        broken = text.replace(self.line, self.broken)
        if path.suffix == ".py":
            compile(broken, self.file, "exec")
        path.write_text(broken)
        return text

    def targets(self) -> tuple[str, ...]:
        """Return what pytest runs: the row's own tests, else those that mirror the file."""
        if self.tests:
            return self.tests
        source = Path(self.file)
        room = "tests" / source.parent.relative_to("blimp" if self.file[:5] == "blimp" else "")
        mirrors = sorted((PROJECT / room).glob(f"test_{source.stem}*.py"))
        return tuple(str(one.relative_to(PROJECT)) for one in mirrors) or (str(room),)


def rows() -> dict[str, tuple[Mutant, ...]]:
    """Return the mutants of each part, by the name of its file: each stands below its `file`."""
    found = {}
    for table in sorted(Path(__file__).parent.glob("*.toml")):
        files = msgspec.toml.decode(table.read_text(), type=dict[str, list[dict[str, object]]])
        mutants = [{"file": file} | row for file, below in files.items() for row in below]
        found[table.stem] = msgspec.convert(mutants, tuple[Mutant, ...])
    return found
