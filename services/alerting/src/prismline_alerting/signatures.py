"""Verifies that a request comes from Discord and is fresh: an Ed25519 signature over timestamp and body."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from nacl.exceptions import CryptoError
from nacl.signing import VerifyKey

from prismline_runtime import PermanentError

#: Headers with the signature and with its time in Unix seconds.
SIGNATURE_HEADER, TIMESTAMP_HEADER = "X-Signature-Ed25519", "X-Signature-Timestamp"
#: Longest age of a request. Older ones are refused, because they may be replayed.
MAX_AGE = timedelta(minutes=5)
#: Longest time by which this machine's clock may be behind Discord's.
MAX_AHEAD = timedelta(seconds=30)

_SIGNATURE = re.compile(r"[0-9a-fA-F]{128}", re.ASCII)
_KEY = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)
_TIMESTAMP = re.compile(r"\d{1,11}", re.ASCII)


class PublicKey:
    """The application's public key: `given` or the result of `look_up`, cached for the life of the process."""

    def __init__(self, given: str | None, look_up: Callable[[], str | None]) -> None:
        self._given = given
        self._look_up = look_up
        self._key: VerifyKey | None = None

    def get(self) -> VerifyKey:
        """The key. Raises PermanentError if it is missing or invalid, and TransientError if SSM does not answer."""
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


@dataclass(frozen=True)
class SignatureClaim:
    """What the headers of a request claim: that Discord signed the body at `moment`."""

    signature: bytes
    timestamp: str

    @property
    def moment(self) -> datetime:
        """When Discord signed the request, if it did."""
        return datetime.fromtimestamp(int(self.timestamp), UTC)

    def holds(self, body: bytes, key: VerifyKey) -> bool:
        """Whether the signature is that of the timestamp and this body."""
        try:
            key.verify(self.timestamp.encode() + body, self.signature)
        except CryptoError:
            return False
        return True


def claimed(headers: Mapping[str, str], now: datetime) -> SignatureClaim | None:
    """What the headers claim. None if they are missing or malformed, or if the time is not close to `now`.

    It needs no key, so no key is looked up for a request that cannot be valid.
    """
    signature, timestamp = headers.get(SIGNATURE_HEADER, ""), headers.get(TIMESTAMP_HEADER, "")
    if _SIGNATURE.fullmatch(signature) is None or _TIMESTAMP.fullmatch(timestamp) is None:
        return None
    claim = SignatureClaim(bytes.fromhex(signature), timestamp)
    return claim if now - MAX_AGE <= claim.moment <= now + MAX_AHEAD else None
