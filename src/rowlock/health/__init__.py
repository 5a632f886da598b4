"""One answer to "what is wrong?": conditions, alert rules, and the messages they send."""
