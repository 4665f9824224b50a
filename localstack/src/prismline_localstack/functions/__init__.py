"""Lambda on this machine: the functions of the stacks, run by awslambdaric and fed as AWS feeds them.

The emulator keeps what CloudFormation deploys: functions, event source mappings, function URLs. This package runs them.

| module | stands for |
| --- | --- |
| `environment` | one execution environment: a process of awslambdaric, and the Runtime API that it asks for work |
| `function` | a function: its environments, which are made when they are needed and frozen between invocations |
| `mapping` | an event source mapping: receives from a queue, invokes, deletes what was done |
| `urls` | a function URL: turns a request into an event, and the answer into a response |
| `images` | the registry of images: here an image is a folder with the files that the Dockerfile copies |
| `driver` | the service itself: follows what is deployed |
"""
