"""A store, an app or a worker under test, with short words for what tests do to it."""
