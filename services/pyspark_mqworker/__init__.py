"""Where Spark finds `format("mqworker")`: it looks into every package whose name begins with `pyspark_`."""

from mqworker_services.pipeline.source import DefaultSource

__all__ = ["DefaultSource"]
