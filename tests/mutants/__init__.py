"""Lines that matter, each broken once: the tests of its own part must notice. See __main__.py."""
