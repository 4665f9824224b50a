"""Bodies of requests: what is refused before anything is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from prismline_api.models import WebhookTarget
from prismline_contracts.jobs import WebhookSecretError, signing_key


@given(secret=st.from_regex(r"whsec_[A-Za-z0-9+/]{30,130}={0,2}", fullmatch=True))
def test_a_secret_is_accepted_exactly_if_it_can_sign(secret: str) -> None:
    try:
        signing_key(secret)
    except WebhookSecretError:
        with pytest.raises(ValidationError, match="whsec_ and base64"):
            WebhookTarget(url="https://example.org/", secret=secret)
    else:
        assert WebhookTarget(url="https://example.org/", secret=secret).secret == secret
