"""Cells: the data for a picture of a run. A cell is a chunk or a task, and one answer holds 100,000 of them."""
