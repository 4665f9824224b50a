"""The exporter: writes all results of a run into one object, a ZIP archive or a Parquet file."""
