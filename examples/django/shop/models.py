from django.db import models


class Order(models.Model):
    status = models.CharField(max_length=20, default="new")
    version = models.IntegerField(default=1)

    def as_event(self) -> dict:
        return {"id": self.pk, "status": self.status, "version": self.version}
