"""The alerting service: posts alarms and failed runs to Discord, once each, unless alerts are muted."""
