"""HTTP clients for addresses that users submit: they reach public addresses only."""

from prismline_web.addresses import RefusedAddressError, refusal
from prismline_web.clients import guarded_async_client, guarded_client
from prismline_web.urls import unusable

__all__ = ["RefusedAddressError", "guarded_async_client", "guarded_client", "refusal", "unusable"]
