"""What the tests share, in rooms, imported as `support.<room>.<module>`:

servers   programs that the tests start or find: PostgreSQL, Redis, PgBouncer, HTTP receivers, Node
rigs      a store, an app or a worker under test, with short words for what tests do to it
sql       SQL beside the library: other drivers, workers that speak SQL alone, rows that break things
races     real processes that race each other, and what interleaves or breaks them
tasks     tasks that tests and their child processes import
web       the browser, the pages it opens, and the HTTP client
files     what is compared with a committed file, or read out of one
"""
