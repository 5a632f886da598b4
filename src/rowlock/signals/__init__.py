"""What Rowlock tells about itself: log lines."""
