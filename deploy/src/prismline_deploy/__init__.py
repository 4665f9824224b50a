"""Deploys the stacks with functions, in the same way to AWS and to an emulator: `prismline deploy | rollback`."""
