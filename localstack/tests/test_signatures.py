"""The emulator checks the signature of each request. Its secret is random and stored in its folder."""

from __future__ import annotations

import http.client
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import boto3
import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from prismline_emulator.endpoints import AGES_PATH, SAVE_PATH
from prismline_localstack.emulator import Emulator
from prismline_localstack.state import make_client

pytestmark = pytest.mark.emulator

#: A role that anybody in the account may take.
TRUST = """{"Version": "2012-10-17", "Statement": [
  {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}]}"""
#: What tells an HTTP server that the body is DynamoDB's ListTables.
LIST_TABLES = {"X-Amz-Target": "DynamoDB_20120810.ListTables"}


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    folder = tmp_path_factory.mktemp("signed")
    started = Emulator.start(folder / "emulator", folder / "log")
    make_client("s3", started.environment).create_bucket(Bucket="bucket")
    yield started
    started.stop()


def client(emulator: Emulator, service: str, **changes: str) -> Any:
    """A client that differs from the emulator's own clients in these variables."""
    return make_client(service, emulator.environment | changes)


def signing_s3(emulator: Emulator, **credentials: str) -> Any:
    """A client of S3 whose links have signatures of version 4."""
    own = {"aws_access_key_id": "test", "aws_secret_access_key": emulator.secret, "region_name": "us-east-1"}
    config = Config(signature_version="s3v4", s3={"addressing_style": "path"})
    return boto3.client("s3", endpoint_url=emulator.endpoint, config=config, **(own | credentials))


def ask(method: str, url: str, body: bytes = b"", **headers: str) -> tuple[int, str]:
    """Status and body of the answer to a request that is sent as it is."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.netloc, timeout=20)
    connection.request(method, f"{address.path or '/'}?{address.query}", body, headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


@pytest.mark.parametrize("service", ["dynamodb", "sqs", "s3", "ec2", "cloudwatch", "cloudformation"])
def test_another_secret_is_refused_with_one_sentence_for_every_protocol(emulator: Emulator, service: str) -> None:
    calls = {
        "dynamodb": "list_tables",
        "sqs": "list_queues",
        "s3": "list_buckets",
        "ec2": "describe_instances",
        "cloudwatch": "describe_alarms",
        "cloudformation": "list_stacks",
    }
    getattr(client(emulator, service), calls[service])()
    with pytest.raises(ClientError, match="not signed with the secret access key of this emulator") as refused:
        getattr(client(emulator, service, AWS_SECRET_ACCESS_KEY="test"), calls[service])()
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403


def test_an_unknown_access_key_is_refused(emulator: Emulator) -> None:
    with pytest.raises(ClientError, match="The access key of the request is unknown"):
        client(emulator, "dynamodb", AWS_ACCESS_KEY_ID="AKIAUNKNOWN").list_tables()


@pytest.mark.parametrize("path", ["/", "/bucket/key", SAVE_PATH, AGES_PATH, "/_ministack/reset", "/_ministack/config"])
@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
def test_a_request_without_a_signature_is_refused(emulator: Emulator, method: str, path: str) -> None:
    status, body = ask(method, f"{emulator.endpoint}{path}", b"{}", **LIST_TABLES)
    assert (status, body) == (403, "The request is not signed with Signature Version 4.\n")


def test_a_changed_body_is_refused(emulator: Emulator) -> None:
    sent: dict[str, Any] = {}
    dynamodb = client(emulator, "dynamodb")
    dynamodb.meta.events.register("before-send.dynamodb.ListTables", lambda request, **_: sent.update(vars(request)))
    dynamodb.list_tables()
    headers = {name: value.decode() if isinstance(value, bytes) else value for name, value in sent["headers"].items()}
    del headers["Content-Length"]
    assert ask("POST", sent["url"], sent["body"], **headers)[0] == 200
    status, body = ask("POST", sent["url"], b'{"Limit": 1}', **headers)
    assert (status, "not signed with the secret" in body) == (403, True)


def test_each_folder_has_a_secret_of_its_own_that_only_its_owner_can_read(emulator: Emulator, tmp_path: Path) -> None:
    other = Emulator.start(tmp_path / "other", tmp_path / "log")
    other.stop()
    again = Emulator.start(tmp_path / "other", tmp_path / "log")
    again.stop()
    assert emulator.secret != other.secret == again.secret
    assert stat.S_IMODE((tmp_path / "other" / "secret").stat().st_mode) == 0o600
    assert len(other.secret) >= 40


def test_temporary_credentials_of_a_role_are_accepted_with_their_token_only(emulator: Emulator) -> None:
    role = client(emulator, "iam").create_role(RoleName="reader", AssumeRolePolicyDocument=TRUST)["Role"]
    taken = client(emulator, "sts").assume_role(RoleArn=role["Arn"], RoleSessionName="test")["Credentials"]
    own = {"aws_access_key_id": taken["AccessKeyId"], "aws_secret_access_key": taken["SecretAccessKey"]}
    own |= {"endpoint_url": emulator.endpoint, "region_name": "us-east-1"}
    assert boto3.client("sqs", **own, aws_session_token=taken["SessionToken"]).list_queues()
    for wrong in ({}, {"aws_session_token": "another"}):
        with pytest.raises(ClientError, match="The access key of the request is unknown"):
            boto3.client("sqs", **own, **wrong).list_queues()


def test_a_link_leads_to_its_object_until_it_expires_or_is_changed(emulator: Emulator) -> None:
    s3 = signing_s3(emulator)
    s3.put_object(Bucket="bucket", Key="key", Body=b"content")
    link = s3.generate_presigned_url("get_object", Params={"Bucket": "bucket", "Key": "key"}, ExpiresIn=2)
    made = time.monotonic()
    with urlopen(link) as answer:
        assert answer.read() == b"content"
    for changed in (link.replace("/key?", "/other?"), link[:-1] + ("0" if link[-1] != "0" else "1")):
        assert ask("GET", changed)[0] == 403
    for method in ("PUT", "DELETE"):
        assert ask(method, link)[0] == 403
    forged = signing_s3(emulator, aws_secret_access_key="guessed")
    assert ask("GET", forged.generate_presigned_url("get_object", Params={"Bucket": "bucket", "Key": "key"}))[0] == 403
    time.sleep(max(0.0, made + 3.1 - time.monotonic()))  # the link has to expire
    assert ask("GET", link)[0] == 403


def test_a_link_for_an_upload_gives_access_to_no_other_service(emulator: Emulator) -> None:
    link = signing_s3(emulator).generate_presigned_url("put_object", Params={"Bucket": "bucket", "Key": "upload"})
    form = b"Action=CreateQueue&QueueName=evil"
    ask("PUT", link, form, **{"Content-Type": "application/x-www-form-urlencoded"})
    stored = client(emulator, "s3").get_object(Bucket="bucket", Key="upload")["Body"].read()
    assert stored == form, "the request was an upload, and no request to SQS"
    assert ask("PUT", link, b"{}", **LIST_TABLES)[0] == 403
    request = AWSRequest("GET", f"{emulator.endpoint}/?Action=ListQueues")
    SigV4QueryAuth(Credentials("test", emulator.secret), "sqs", "us-east-1").add_auth(request)
    assert ask("GET", str(request.url))[0] == 403


def test_a_link_for_an_upload_copies_no_other_object(emulator: Emulator) -> None:
    s3 = signing_s3(emulator)
    s3.put_object(Bucket="bucket", Key="private", Body=b"private")
    link = s3.generate_presigned_url("put_object", Params={"Bucket": "bucket", "Key": "copy"})
    status, body = ask("PUT", link, **{"x-amz-copy-source": "/bucket/private"})
    assert (status, "x-amz-copy-source" in body) == (403, True)
    assert [found["Key"] for found in s3.list_objects_v2(Bucket="bucket", Prefix="copy").get("Contents", [])] == []


def test_services_that_prismline_does_not_use_are_off(emulator: Emulator) -> None:
    for service, call in (("sns", "list_topics"), ("ecs", "list_clusters"), ("lambda", "list_functions")):
        with pytest.raises(ClientError, match="This emulator does not run the service"):
            getattr(client(emulator, service), call)()
