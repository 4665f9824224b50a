"""Prismline's contracts, version 1: messages, table items, stored objects, and the names and limits of queues.

Import a contract from the module that defines it, so that the imports of a service say which contracts it uses. This
package imports no other package of the repository.
"""
