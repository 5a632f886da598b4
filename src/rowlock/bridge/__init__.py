"""Redis Streams: publishes jobs to workers in other languages, and writes down what they report."""
