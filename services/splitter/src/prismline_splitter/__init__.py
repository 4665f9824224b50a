"""The splitter: announces the run of a new manifest, and splits the run's source into chunks."""
