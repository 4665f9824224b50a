"""The error of a deployment. Its message says what is wrong, where, and what the user can do."""


class DeployError(Exception):
    """The stacks could not be deployed or rolled back."""
