"""`python -m blimp.queue worker -A module:app`."""

import sys

from blimp.queue.cli.main import main

sys.exit(main())
