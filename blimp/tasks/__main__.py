"""`python -m blimp.tasks worker -A module:app`."""

import sys

from blimp.tasks.cli import main

sys.exit(main())
