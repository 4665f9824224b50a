"""A test runs every command of the pages on contracts, deployments and releases, or says why it cannot."""

from __future__ import annotations

import re
from typing import Any

from prismline_deploy.order import parse, stacks_of
from prismline_localstack.settings import REPOSITORY
from tests.docs.commands import all_commands

PAGES = ("change-a-contract", "deploy", "deploy-from-a-pipeline", "release", "upgrade-and-roll-back")

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
    "pip install --no-index --find-links dist prismline-localstack": (
        f"{WHEELS}::test_nothing_is_imported_from_the_checkout"
    ),
    "python -m venv --without-pip $VIRTUAL_ENV/emulator": f"{WHEELS}::test_the_demo_runs",
    "pip --python $VIRTUAL_ENV/emulator/bin/python install --no-index --find-links dist 'prismline-emulator[server]'": (
        f"{WHEELS}::test_the_demo_runs"
    ),
    "pip install --no-index --find-links dist prismline-deploy": f"{WHEELS}::test_the_deploy_tool_runs_no_system",
    "prismline demo": f"{WHEELS}::test_the_demo_runs",
    "prismline deploy --env prod --plan": f"{WHEELS}::test_an_environment_is_planned",
    "git grep -hoP '^name = \"\\Kprismline[^\"]*' -- '*pyproject.toml'": (
        "tests/releases/test_metadata.py::test_the_names_to_reserve_are_those_of_all_packages"
    ),
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
    "python3.11 releases.py tag prismline-worker-1.1.0": (
        "tests/releases/test_workflows.py::test_the_release_workflow_takes_only_tags_that_name_a_package_and_its_version"
    ),
    "python3.11 releases.py check services/worker": f"{SPARSE}::test_a_release_is_checked_and_recorded",
    "python3.11 releases.py record services/worker": f"{SPARSE}::test_a_release_is_checked_and_recorded",
}

#: Commands that no test runs exactly as written, and why.
NOT_RUN = {
    "make check": "`make test` runs it before the tests",
    "pip install --require-hashes -r requirements/runtime.txt": (
        "it takes minutes: every virtual environment of the tests has these packages"
    ),
    "pip install --require-hashes -r dist/deploy.txt": (
        "it takes minutes: every virtual environment of the tests has these packages"
    ),
    "pip --python $VIRTUAL_ENV/emulator/bin/python install --require-hashes -r requirements/emulator.txt": (
        "it takes a minute: the environment of the emulator of the tests has these packages"
    ),
    "make updates": "it asks registries and a package index: tests/releases/test_updates.py has stand-ins for both",
    "prismline deploy": "a sentence names the command without its options",
    "prismline publish": "a sentence names the command without its options",
    "prismline deploy --image": "a sentence names the option without its value",
    "prismline rollback": "a sentence names the command without its options",
    "export AWS_PROFILE=my-account AWS_REGION=eu-central-1": "the account is the reader's; a test has the emulator's",
    "prismline deploy --env prod --parameter WorkerCompute=fargate"
    " --parameter FunctionSubnetIds=subnet-0aaa,subnet-0bbb --parameter FunctionSecurityGroupIds=sg-0ccc": (
        "the emulator refuses templates with Fargate: tests/templates checks the template with these parameters"
    ),
    "aws cloudformation deploy --stack-name prismline-prod-gpu --template-file services/worker/gpu.yaml"
    " --capabilities CAPABILITY_IAM --parameter-overrides Environment=prod VpcId=vpc-0aaa"
    " SubnetIds=subnet-0aaa,subnet-0bbb WorkerSecurityGroupId=sg-0ccc MaximumInstances=2": (
        "tests/e2e/test_gpu_group.py creates the stack on the emulator with these parameters"
    ),
    "prismline gpu up": "a sentence names the command, which localstack/tests/test_gpu_commands.py runs",
    "gh attestation verify prismline_worker-1.1.0-py3-none-any.whl --repo OWNER/REPOSITORY": "nothing is attested yet",
    "cosign verify --certificate-oidc-issuer https://token.actions.githubusercontent.com"
    " --certificate-identity-regexp '^https://github.com/OWNER/REPOSITORY/' \"$IMAGE\"": "no image is signed yet",
    "aws service-quotas request-service-quota-increase --service-code lambda --quota-code L-B99A9384"
    " --desired-value 1000": f"the emulator has no quotas: {DEPLOYING} checks its parameters and sends nothing",
}


def test_every_command_is_run_or_says_why_not() -> None:
    written = {command for name in PAGES for command in all_commands(REPOSITORY / "docs/how-to" / f"{name}.md")}
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
    pages = "".join((REPOSITORY / "docs/how-to" / f"{name}.md").read_text() for name in PAGES)
    given = set(re.findall(r"--parameter (\w+)=([^ `\n]+)", pages)) | set(re.findall(r"`([A-Z]\w+)=(\w+)`", pages))
    assert len(given) >= 10
    for name, value in given:
        assert name in declared, name
        assert all(value in each.get("AllowedValues", [value]) for each in declared[name]), f"{name}={value}"


def test_deploy_local_runs_the_tests_of_functions() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    assert re.search(rf"^deploy-local:.*\n\t\$\(BIN\)/pytest .* {re.escape(FUNCTIONS)}$", makefile, re.MULTILINE)
