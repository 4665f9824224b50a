"""Operations about the whole deployment: its alerts, its queues, its deployed services."""
