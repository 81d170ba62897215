"""The table of what must never be, as a page: `python -m benchmarks.policies_page`.

Writes docs/policies.md from `blimp/recording/policies.py` and `benchmarks/policies.py`.
"""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.policies import TRUTH_POLICIES
from blimp.recording.policies import POLICIES, Policy

PAGE = Path(__file__).parents[1] / "docs" / "policies.md"

HEAD = """# What must never be

Made by `python -m benchmarks.policies_page`. Each row is a policy: a property in temporal logic
that holds at every moment of every flight. `blimp log check FILE` asks a recorded flight,
simulated or real, all of the first table, and exits with 1 if one is breached; a report of the
flight has the breaches among its findings.

`once[s]` looks back and `within[s]` ahead by so many seconds, `lasted[s]` means during all of them,
`near[s]` both ways; `rose` and `fell` are moments. What nobody measured, and a deadline after the
end of the log, is not known and breaches nothing. A formula also says by how much it holds (robust
semantics, Fainekos and Pappas 2009). Operators: `blimp/recording/temporal.py`.
"""

TRUTH = """The campaigns and the fuzzer ask every simulated flight these as well. The search keeps
the case that came nearest to a breach of each policy, changes it a little and flies it again, as
PGFuzz does (Kim et al., NDSS 2021):

    # not tested: takes minutes
    python -m benchmarks.fuzz --flights 400 --seed 7
    python -m benchmarks.campaign cells --flights 100 --seed 7

`tests/mutants/policies.toml` has lines of the ship's code which, broken, must breach a policy in
the flights that the search begins with.
"""


def page() -> str:
    """Return the whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield HEAD
    yield f"## By the log alone: {len(POLICIES)}\n"
    yield from _table(POLICIES)
    yield f"\n## By the truth of a simulation: {len(TRUTH_POLICIES)}\n"
    yield TRUTH
    yield from _table(TRUTH_POLICIES)


def _table(policies: tuple[Policy, ...]) -> Iterator[str]:
    yield "| policy | what must hold | formula | guards |"
    yield "|---|---|---|---|"
    for one in policies:
        rule = f"`{one.rule}`" if "/" in one.rule else one.rule
        formula = one.formula.text.replace("|", "\\|")
        yield f"| {one.name} | {one.text} | `{formula}` | {rule} |"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
