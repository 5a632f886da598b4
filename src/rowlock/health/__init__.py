"""One answer to "what is wrong?": conditions, alerts, and their messages."""
