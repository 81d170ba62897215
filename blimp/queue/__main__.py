"""`python -m blimp.queue worker -A module:app`. Tested by test_main.py."""

import sys

from blimp.queue.cli.main import main

sys.exit(main())
