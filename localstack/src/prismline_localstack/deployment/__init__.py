"""Deploy the stacks with functions, to AWS or to an emulator, by one way: `prismline deploy` and `prismline rollback`.

| module | what it does |
| --- | --- |
| `order` | derives from the templates which stack needs which, and so the order |
| `change_sets` | makes a change set of a stack, says what it changes, executes it |
| `record` | remembers in SSM which version of a service is deployed, and which were before |
| `containers` | builds images of services and pushes them to ECR |
| `deploying` | puts these together: deploy platform and services, or one service; roll one back |
"""
