"""Whether a request is Discord's, and fresh: Ed25519 over timestamp and body, as Discord's documentation has it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from nacl.exceptions import CryptoError
from nacl.signing import VerifyKey

from prismline_runtime import PermanentError

#: Headers of the signature and of the moment, in unix seconds, that it was made.
SIGNATURE_HEADER, TIMESTAMP_HEADER = "X-Signature-Ed25519", "X-Signature-Timestamp"
#: Older requests are refused: somebody may have kept them.
MAX_AGE = timedelta(minutes=5)
#: Our clock may be behind Discord's by this much.
MAX_AHEAD = timedelta(seconds=30)

_SIGNATURE = re.compile(r"[0-9a-fA-F]{128}", re.ASCII)
_KEY = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)
_TIMESTAMP = re.compile(r"\d{1,11}", re.ASCII)


class PublicKey:
    """The application's public key: `given`, or what `look_up` finds, remembered while the process lives."""

    def __init__(self, given: str | None, look_up: Callable[[], str | None]) -> None:
        self._given = given
        self._look_up = look_up
        self._key: VerifyKey | None = None

    def get(self) -> VerifyKey:
        """The key. Raises PermanentError when there is none or it is not one, TransientError when SSM is silent."""
        if self._key is None:
            self._key = _verify_key(self._given or self._look_up())
        return self._key


def _verify_key(text: str | None) -> VerifyKey:
    if not text:
        raise PermanentError(
            "There is no public key to check interactions with: set DISCORD_PUBLIC_KEY or the parameter"
            " alerts/discord_public_key."
        )
    if _KEY.fullmatch(text) is None:
        raise PermanentError(
            "The Discord public key is not 64 hexadecimal digits: copy it from the application's page."
        )
    return VerifyKey(bytes.fromhex(text))


def signed_at(headers: Mapping[str, str], body: bytes, key: VerifyKey, now: datetime) -> datetime | None:
    """When Discord signed this very request; None: it did not, or not within the last five minutes."""
    signature, timestamp = headers.get(SIGNATURE_HEADER, ""), headers.get(TIMESTAMP_HEADER, "")
    if _SIGNATURE.fullmatch(signature) is None or _TIMESTAMP.fullmatch(timestamp) is None:
        return None
    try:
        key.verify(timestamp.encode() + body, bytes.fromhex(signature))
    except CryptoError:
        return None
    moment = datetime.fromtimestamp(int(timestamp), UTC)
    return moment if now - MAX_AGE <= moment <= now + MAX_AHEAD else None
