"""A test runs every command of the pages on contracts, deployments and releases, or says why it cannot."""

from __future__ import annotations

import re
from typing import Any

from prismline_deploy.order import parse, stacks_of
from prismline_localstack.settings import REPOSITORY
from tests.docs.commands import all_commands

PAGES = ("evolving-contracts", "deploying", "releasing")

DEPLOYING = "tests/docs/test_deploying_page.py"
EVOLVING = "tests/contracts/test_evolving.py"
FUNCTIONS = "tests/e2e/test_functions.py"
PACTS = "tests/contracts/test_pacts.py"
SPARSE = "tests/releases/test_sparse_checkout.py"
WHEELS = "tests/releases/test_wheels.py"

WORKER = "prismline deploy --env prod --service worker"
LOCAL = "--env local --service worker"
OIDC = "token.actions.githubusercontent.com"

#: The test that runs each command. It reads the command from the page, and uses another service or folder if that is
#: quicker.
RUN = {
    # A contract changes.
    "make contracts": f"{EVOLVING}::test_adding_a_field",
    "make schemas": f"{EVOLVING}::test_adding_a_field",
    "make pacts": f"{PACTS}::test_every_pact_is_what_its_consumer_needs_now",
    ".venv/bin/prismline-contracts can-i-deploy worker 1.1.0 --to prod": f"{EVOLVING}::test_asking_about_a_deployment",
    "aws ssm get-parameters-by-path --path /prismline/prod/deployed |"
    " .venv/bin/prismline-contracts can-i-deploy worker 1.1.0 --to prod --record -": (
        f"{DEPLOYING}::test_what_is_deployed_says_whether_a_service_can_be"
    ),
    ".venv/bin/prismline-contracts release 1.2.0": (
        f"{EVOLVING}::test_adding_a_major_version_and_retiring_the_one_before"
    ),
    # Deployments.
    "prismline up --functions": f"{DEPLOYING}::system",
    "prismline submit cube.fits --survey test --wait": f"{DEPLOYING}::test_a_cube_is_decomposed",
    "make deploy-local": f"{FUNCTIONS}::test_the_worker_is_upgraded_and_rolled_back_while_a_run_goes_on",
    "prismline deploy --env prod --service platform --plan": f"{DEPLOYING}::account",
    "prismline deploy --env prod": f"{DEPLOYING}::account",
    "aws lambda get-account-settings --query AccountLimit.ConcurrentExecutions": (
        f"{DEPLOYING}::test_concurrency_is_reserved_once_the_account_has_enough"
    ),
    "prismline deploy --env prod --parameter ReserveConcurrency=true": (
        f"{DEPLOYING}::test_concurrency_is_reserved_once_the_account_has_enough"
    ),
    f"aws iam create-open-id-connect-provider --url https://{OIDC} --client-id-list sts.amazonaws.com": (
        f"{DEPLOYING}::test_a_pipeline_has_a_role_to_deploy_with"
    ),
    f"prismline deploy --env prod --service platform --parameter DeployerIssuer={OIDC}"
    " --parameter DeployerSubjects=repo:my-organization/prismline:environment:prod": (
        f"{DEPLOYING}::test_a_pipeline_has_a_role_to_deploy_with"
    ),
    WORKER: f"{DEPLOYING}::test_a_pipeline_has_a_role_to_deploy_with",
    f"{WORKER} --root ../earlier": f"{DEPLOYING}::test_an_earlier_checkout_is_deployed",
    f"prismline deploy {LOCAL} --plan": f"{DEPLOYING}::test_an_upgrade_and_a_rollback",
    f"prismline deploy {LOCAL}": f"{DEPLOYING}::test_an_upgrade_and_a_rollback",
    f"prismline rollback {LOCAL} --plan": f"{DEPLOYING}::test_an_upgrade_and_a_rollback",
    f"prismline rollback {LOCAL}": f"{DEPLOYING}::test_an_upgrade_and_a_rollback",
    'aws ssm get-parameters-by-path --path /prismline/local/deployed --query "Parameters[].Value"': (
        f"{DEPLOYING}::test_an_upgrade_and_a_rollback"
    ),
    # Releases.
    "make wheels": f"{WHEELS}::test_every_package_is_a_wheel",
    "pip install --find-links dist prismline-localstack": f"{WHEELS}::test_nothing_is_imported_from_the_checkout",
    "pip install --find-links dist prismline-deploy": f"{WHEELS}::test_the_deploy_tool_runs_no_system",
    "prismline demo": f"{WHEELS}::test_the_demo_runs",
    "prismline deploy --env prod --plan": f"{WHEELS}::test_an_environment_is_planned",
    'git clone --filter=blob:none --no-checkout "$REPOSITORY" prismline': f"{SPARSE}::sparse",
    "cd prismline": f"{SPARSE}::sparse",
    "git sparse-checkout set services/worker contracts libs": f"{SPARSE}::sparse",
    "git checkout": f"{SPARSE}::sparse",
    'make -C services/worker install WHEELS="$PWD/../dist"': f"{SPARSE}::tools",
    'make -C services/worker install-deploy WHEELS="$PWD/../dist"': f"{SPARSE}::deployer",
    "make -C services/worker lint test": f"{SPARSE}::test_lint_and_tests_pass",
    "make -C services/worker image bill": "tests/compose/test_service_image.py::test_a_service_builds_its_image",
    "make -C services/worker plan deploy ENV=local": (
        f"{SPARSE}::test_the_service_is_planned_deployed_and_rolled_back"
    ),
    "make -C services/worker rollback ENV=local": f"{SPARSE}::test_the_service_is_planned_deployed_and_rolled_back",
    "digest=$(docker buildx imagetools inspect python:3.11-slim-bookworm --format '{{.Manifest.Digest}}')": (
        f"{SPARSE}::test_the_base_image_is_pinned"
    ),
    r'sed -E -i "s/^(FROM python:3.11-slim-bookworm)[^ ]*/\1@$digest/" services/*/Dockerfile': (
        f"{SPARSE}::test_the_base_image_is_pinned"
    ),
    "python3.11 releases.py check services/worker": f"{SPARSE}::test_a_release_is_checked_and_recorded",
    "python3.11 releases.py record services/worker": f"{SPARSE}::test_a_release_is_checked_and_recorded",
}

#: Commands that no test runs exactly as written, and why.
NOT_RUN = {
    "make check": "`make test` runs it before the tests",
    "make docs": "`make check` builds the same site",
    "prismline deploy": "a sentence names the command without its options",
    "prismline rollback": "a sentence names the command without its options",
    "export AWS_PROFILE=my-account AWS_REGION=eu-central-1": "the account is the reader's; a test has the emulator's",
    f"{WORKER} --parameter WorkerCompute=fargate --parameter FunctionSubnetIds=subnet-0aaa,subnet-0bbb"
    " --parameter FunctionSecurityGroupIds=sg-0ccc": (
        "the emulator refuses templates with Fargate: tests/templates checks the template with these parameters"
    ),
    "aws service-quotas request-service-quota-increase --service-code lambda --quota-code L-B99A9384"
    " --desired-value 1000": f"the emulator has no quotas: {DEPLOYING} checks its parameters and sends nothing",
}


def test_every_command_is_run_or_says_why_not() -> None:
    written = {command for name in PAGES for command in all_commands(REPOSITORY / "docs" / f"{name}.md")}
    assert written - RUN.keys() - NOT_RUN.keys() == set(), "name the test that runs the command"
    assert (RUN.keys() | NOT_RUN.keys()) - written == set(), "no page has the command"
    assert RUN.keys() & NOT_RUN.keys() == set()


def test_the_tests_that_run_them_exist() -> None:
    for command, place in RUN.items():
        path, _, name = place.partition("::")
        assert re.search(rf"^def {name}\(", (REPOSITORY / path).read_text(), re.MULTILINE), f"{command}: {place}"


def test_a_template_declares_each_parameter_and_takes_its_value() -> None:
    declared: dict[str, list[dict[str, Any]]] = {}
    for path in stacks_of(REPOSITORY).values():
        for name, parameter in parse(path.read_text())["Parameters"].items():
            declared.setdefault(name, []).append(parameter)
    pages = "".join((REPOSITORY / "docs" / f"{name}.md").read_text() for name in PAGES)
    given = set(re.findall(r"--parameter (\w+)=([^ `\n]+)", pages)) | set(re.findall(r"`([A-Z]\w+)=(\w+)`", pages))
    assert len(given) >= 10
    for name, value in given:
        assert name in declared, name
        assert all(value in each.get("AllowedValues", [value]) for each in declared[name]), f"{name}={value}"


def test_deploy_local_runs_the_tests_of_functions() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    assert re.search(rf"^deploy-local:.*\n\t\$\(BIN\)/pytest .* {re.escape(FUNCTIONS)}$", makefile, re.MULTILINE)
