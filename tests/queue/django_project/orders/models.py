from django.db import models


class Order(models.Model):
    """confirmed_by: the process that confirmed it, None before. counted: how often it was."""

    item = models.CharField(max_length=100)
    confirmed_by = models.IntegerField(null=True)
    counted = models.IntegerField(default=0)
