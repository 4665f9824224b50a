"""What HTTP services share: API keys, sessions, problems, cursors, limits of requests, security headers."""
