"""Redis Streams: publishes jobs to workers in other languages, and stores what they report."""
