"""The account as a target: names of environments that it cannot have are refused with the reason."""

from __future__ import annotations

import pytest

from prismline_deploy.errors import DeployError
from prismline_deploy.targets import account_target


def test_a_name_that_is_too_long_for_a_bucket_in_the_region_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "ap-southeast-1")
    with pytest.raises(DeployError, match="in ap-southeast-1 the name of an environment has at most 18 characters"):
        account_target("observatory-of-tokyo", {})
    assert account_target("observatory-tokyo", {}).environment == "observatory-tokyo"
