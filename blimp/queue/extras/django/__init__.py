"""The queue in a Django project; in INSTALLED_APPS, its outbox. Needs the extra `django`.

Tested by test_tasks_backend.py.
"""

HEADER = "blimp_django"  # of the messages of Django's own tasks: see ticket.py
