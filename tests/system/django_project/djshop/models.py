"""Orders, and notes of which tasks ran."""

from django.db import models


class Order(models.Model):
    """What somebody bought."""

    article = models.CharField(max_length=50)
    runs = models.IntegerField(default=0)
