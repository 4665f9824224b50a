#!/bin/bash
# Deploys Prismline's stacks to your own LocalStack each time it becomes ready.
#
#   docker run --rm -p 127.0.0.1:4566:4566 -v "$PWD/localstack/init/ready.d:/etc/localstack/init/ready.d:ro" \
#     -v "$PWD/platform:/prismline/platform:ro" -v "$PWD/services:/prismline/services:ro" localstack/localstack:4.14.0
#
# ENVIRONMENT names the deployment. Default: `local`.
set -euo pipefail

environment=${ENVIRONMENT:-local}
root=${PRISMLINE_ROOT:-/prismline}
export AWS_ENDPOINT_URL=http://localhost:4566 AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test
export AWS_REGION=us-east-1 AWS_DEFAULT_REGION=us-east-1

command -v aws > /dev/null || aws() { awslocal "$@"; }

if [ ! -e "$root/platform/template.yaml" ]; then
  echo "prismline: there are no templates in $root. Mount the folders platform and services of the checkout there." >&2
  exit 1
fi

put_stack() {  # name, template, further parameters
  local name=$1 template=$2
  shift 2
  echo "prismline: deploying prismline-$environment-$name"
  aws cloudformation deploy --stack-name "prismline-$environment-$name" --template-file "$template" \
    --capabilities CAPABILITY_NAMED_IAM --no-fail-on-empty-changeset \
    --parameter-overrides "Environment=$environment" "$@"
}

put_stack platform "$root/platform/template.yaml" DeletionProtection=false Emulator=true
bucket=$(aws ssm get-parameter --name "/prismline/$environment/platform/deployment-bucket" --query Parameter.Value --output text)

deployments=()
for template in "$root"/services/*/template.yaml; do
  service=$(dirname "$template")
  # The services do not run as Lambda functions here, and LocalStack has no Athena.
  parameters=()
  for parameter in DeployFunctions=false DeploySearch=false DeletionProtection=false MetricMath=false Emulator=true; do
    if grep -q "^  ${parameter%%=*}:" "$template"; then parameters+=("$parameter"); fi
  done
  for definition in "$service"/statemachine/*.asl.json; do
    [ -e "$definition" ] || continue
    key=state-machines/$(sha256sum "$definition" | cut -c1-16)/$(basename "$definition")
    aws s3api put-object --bucket "$bucket" --key "$key" --body "$definition" > /dev/null
    parameters+=("StateMachineKey=$key")
  done
  put_stack "$(basename "$service")" "$template" "${parameters[@]}" &
  deployments+=($!)
done
for deployment in "${deployments[@]}"; do wait "$deployment"; done
echo "prismline: ready"
