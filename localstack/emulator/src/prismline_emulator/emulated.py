"""The services that the emulator offers: those that Prismline calls. A test compares them with the code.

The stacks use more services. CloudFormation creates their resources within the emulator, and needs no requests for it.
"""

from __future__ import annotations

#: By the name that requests are signed for.
SERVICES = (
    "autoscaling",
    "cloudformation",
    "dynamodb",
    "ec2",
    "events",
    "iam",
    "monitoring",
    "s3",
    "sqs",
    "ssm",
    "states",
    "sts",
)
#: The services that only `prismline up --functions` needs.
FUNCTION_SERVICES = ("ecr", "lambda")
#: The emulator itself: its state is stored on request, and it tells the ages of messages.
OWN_SERVICE = "prismline"


def offered(*, functions: bool) -> frozenset[str]:
    """The services that an emulator offers. functions: whether it is for functions."""
    return frozenset([*SERVICES, *(FUNCTION_SERVICES if functions else ())])
