"""The HTTP interface of Prismline."""
