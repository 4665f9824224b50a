"""Lambda on this machine: awslambdaric runs the functions of the stacks, and they are invoked as on AWS.

The emulator stores what CloudFormation deploys: functions, event source mappings, function URLs. This package runs
them.

| module | emulates |
| --- | --- |
| `environment` | an execution environment: a process of awslambdaric, and the Runtime API that it asks for work |
| `function` | a function: its environments, which are created on demand and frozen between invocations |
| `mapping` | an event source mapping: receives from a queue, invokes, deletes the processed messages |
| `urls` | a function URL: converts a request to an event, and the answer to a response |
| `images` | the registry of images: here an image is a folder with the files that the Dockerfile copies |
| `driver` | the Lambda service: runs the functions and mappings that are deployed |

Besides, `offline` and `parameters` prepare a deployment.
"""
