"""The alerting service: tells people of alarms and failed runs, once each, unless they muted it."""
