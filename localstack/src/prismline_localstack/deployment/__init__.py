"""Deploy the stacks with functions, in the same way to AWS and to an emulator: `prismline deploy | rollback`.

| module | what it does |
| --- | --- |
| `order` | derives from the templates which stack needs which, and so the order |
| `change_sets` | creates a change set of a stack, describes its changes, executes it |
| `record` | records in SSM which version of a service is deployed, and its previous versions |
| `containers` | builds images of services and pushes them to ECR |
| `deploying` | combines these: deploys platform and services, or one service; rolls one back |
"""
