"""The history lake: finished runs as Parquet, in a folder or in S3."""
