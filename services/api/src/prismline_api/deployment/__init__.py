"""What concerns the deployment as a whole: its alerts, its queues, what was deployed."""
