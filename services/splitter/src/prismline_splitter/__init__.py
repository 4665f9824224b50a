"""The splitter service: from a cube to chunks."""
