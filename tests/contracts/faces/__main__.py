"""`python -m tests.contracts.faces`: print the table of faces and questions, one ship for all."""

import sys
from contextlib import closing

from tests.contracts.faces.face import QUESTIONS
from tests.contracts.faces.rig import Rig
from tests.contracts.faces.table import FACES, STOP_S, ask, printed


def main() -> int:
    cells: dict[tuple[str, str], str] = {}
    is_red = False
    with Rig() as rig:
        for name, made in FACES.items():
            for question in QUESTIONS:
                with closing(made(rig)) as face:
                    if question in face.without:
                        cells[name, question] = "-"
                        continue
                    try:
                        took_s, undisturbed_s = ask(rig, face, question)
                        is_late = undisturbed_s > STOP_S
                        words = f"{1e3 * took_s:.0f} ms{' LATE' if is_late else ''}"
                    except (AssertionError, TimeoutError, OSError) as error:
                        is_late, words = True, "RED"
                        print(f"{name}, {question}: {error}", file=sys.stderr)
                is_red |= is_late
                cells[name, question] = words
    print("a stop's time beside each question")
    print(printed(cells))
    return int(is_red)


if __name__ == "__main__":
    sys.exit(main())
