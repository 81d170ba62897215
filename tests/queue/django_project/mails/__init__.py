"""Tasks of `django.tasks`, which Django has from 6.0 on."""
