"""Pages for a browser: who gets in, the server, and shared files. Needs the extra `page`."""
