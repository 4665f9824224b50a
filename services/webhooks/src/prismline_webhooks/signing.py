"""Signs a post as the Standard Webhooks specification says. Pure.

Source: https://github.com/standard-webhooks/standard-webhooks, "Verifying webhook authenticity".
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import datetime

from prismline_contracts.jobs import signing_key


def signed_headers(secret: str, event_id: str, body: bytes, now: datetime) -> dict[str, str]:
    """The headers of a post: the event's id, the time in Unix seconds, and the HMAC-SHA256 over both and the body.

    Raises WebhookSecretError.
    """
    moment = str(int(now.timestamp()))
    digest = hmac.new(signing_key(secret), f"{event_id}.{moment}.".encode() + body, hashlib.sha256).digest()
    return {
        "webhook-id": event_id,
        "webhook-timestamp": moment,
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
        "content-type": "application/json",
    }
