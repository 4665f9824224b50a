"""Cells: what a picture of a run shows of each of its chunks or tasks, 100,000 of them in one answer."""
