"""The data pipeline: task events on Spark, from Redis to a Parquet lake and back."""
