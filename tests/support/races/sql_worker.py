"""A worker of the race tests that uses nothing but the SQL functions: `python -m support.races.sql_worker URL NAME`.

It takes jobs of the task `work`, ten at a time, until its standard input ends; then it prints how its calls of
`rowlock.complete_many` were answered, as JSON.
"""

import json
import select
import sys
from collections import Counter

import psycopg


def main(url: str, name: str) -> None:
    answers: Counter[str] = Counter()
    with psycopg.connect(url, autocommit=True) as connection:
        while not select.select([sys.stdin], [], [], 0)[0]:
            claimed = connection.execute(
                "SELECT job_id, token FROM rowlock.claim(%s, '{work}', 10, '{\"lease_seconds\": 60}')", [name]
            ).fetchall()
            if not claimed:
                select.select([sys.stdin], [], [], 0.02)
                continue
            done = [{"job_id": str(job), "token": str(token), "result": name} for job, token in claimed]
            ended = connection.execute("SELECT answer FROM rowlock.complete_many(%s)", [json.dumps(done)]).fetchall()
            answers.update(answer for (answer,) in ended)
    print(json.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
