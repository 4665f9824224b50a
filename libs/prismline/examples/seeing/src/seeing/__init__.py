"""Counts the sources in images."""

from seeing.counting import count_sources

__all__ = ["count_sources"]
