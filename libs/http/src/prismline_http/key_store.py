"""The items of API keys, tenants and secrets in the jobs table."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Literal

from boto3.dynamodb.conditions import Key

from prismline_contracts.jobs import TENANTS_PK, ApiKeyItem, TenantItem, api_key_key
from prismline_runtime import Table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

#: Names of the secrets, after what they sign. The first instance that needs a secret creates it.
SecretName = Literal["cursors", "sessions"]


class KeyStore:
    """Reads API keys, and creates tenants and secrets. Raises UnavailableError if DynamoDB does not answer."""

    def __init__(self, dynamodb: DynamoDBClient, table: str) -> None:
        self._table = Table(dynamodb, table)

    def api_key(self, sha256: str) -> ApiKeyItem | None:
        """The API key with this hash, or None."""
        item = self._table.get(api_key_key(sha256))
        return None if item is None else ApiKeyItem.model_validate(item)

    def tenants(self) -> list[str]:
        """The tenants that have or had a key, but not those whose keys are of an earlier release and were not used."""
        return [TenantItem.model_validate(item).tenant for item in self._table.query(Key("PK").eq(TENANTS_PK))]

    def note_tenant(self, tenant: str) -> None:
        """Write the tenant's item, unless it exists."""
        self._table.create(TenantItem(SK=tenant).model_dump(exclude_none=True), key="PK")

    def secret(self, name: SecretName) -> bytes:
        """The secret that signs cursors or sessions, the same for all instances."""
        key = {"PK": f"SECRET#{name}", "SK": "SECRET"}
        item = self._table.get(key)
        if item is None:
            self._table.create({**key, "secret": secrets.token_hex(32)}, key="PK")
            item = self._table.get(key) or {}
        return bytes.fromhex(item["secret"])
