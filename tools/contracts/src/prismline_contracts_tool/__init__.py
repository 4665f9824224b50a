"""The tool of the contracts: it compares them with the last release, checks deployments, and writes their pages.

No service imports it, and no image contains it.
"""
