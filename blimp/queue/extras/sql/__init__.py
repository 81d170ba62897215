"""Results in a database, in the tables that Celery uses. Needs the extra `sql`."""
