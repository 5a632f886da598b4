"""Settings with mistakes: each is refused with the key, the value, the place and what was probably meant."""

from rowlock.core.config.load import Given
from support.each import each
from support.rigs.config import load, mistake

# --- mistakes


@each(
    "key, value, reason",
    [
        ("pool_size", 0, "greater than or equal to 1"),
        ("pool_size", 10_001, "less than or equal to 10000"),
        ("pool_size", "many", "valid integer"),
        ("pool_size", True, "must be a number"),
        ("pool_size", None, "valid integer"),
        ("claim_batch_size", 1.5, "valid integer"),
        ("poll_interval_seconds", 0, "greater than 0"),
        ("poll_interval_seconds", -1, "greater than 0"),
        ("poll_interval_seconds", float("inf"), "less than or equal to 86400"),
        ("poll_interval_seconds", float("nan"), "greater than 0"),
        ("sweep_seconds", "5 minutes", "5m"),
        ("shutdown_timeout_seconds", -1, "greater than or equal to 0"),
        ("processes", 0, "greater than or equal to 1"),
        ("queues", [], "one name or more"),
        ("queues", ["a", ""], "none of them empty"),
        ("queues", ["a", "a"], "same name twice"),
        ("queues", [1], "valid string"),
        ("wakeups", "perhaps", "valid boolean"),
    ],
)
def test_a_wrong_value_names_key_value_and_line(key: str, value: object, reason: str) -> None:
    yaml = {None: "null", float("inf"): ".inf"}.get(value, str(value)) if not isinstance(value, list) else value
    yaml = ".nan" if value != value else yaml
    message = mistake(f"database: sqlite:///a.db\nworker:\n  {key}: {yaml}\n")
    assert message.startswith(f"worker.{key} = {value!r} (rowlock.yaml:3): ")
    assert reason in message


@each(
    "key, value, reason",
    [
        ("database", "mysql://localhost/a", "sqlite:/// or postgresql://"),
        ("database", "postgresql+asyncpg://localhost/a", "sqlite:/// or postgresql://"),
        ("database", 5, "valid string"),
        ("pooler", "statement", "'session' or 'transaction'"),
        ("direct_url", "sqlite:///a.db", "postgresql://"),
        ("app", "shop jobs", "module:attribute"),
        ("app", "shop/jobs.py:app", "module:attribute"),
        ("transactions.connections", 0, "greater than or equal to 1"),
        ("transactions.idle_seconds", 0, "greater than 0"),
        ("retention.succeeded_days", -1, "greater than or equal to 0"),
    ],
)
def test_a_wrong_flag_is_named_as_a_flag(key: str, value: object, reason: str) -> None:
    message = mistake(**{key.replace(".", "__"): value})
    flag = key.rpartition(".")[2].replace("_", "-")
    assert message.startswith(f"{key} = {value!r} (--{flag}): ")
    assert reason in message


def test_a_caller_may_name_the_origin_itself() -> None:
    assert mistake(database=Given("mysql://a", "argument")).startswith("database = 'mysql://a' (argument): ")


def test_a_wrong_variable_is_named() -> None:
    message = mistake(env={"ROWLOCK_WORKER__POOL_SIZE": "0"})
    assert message.startswith("worker.pool_size = '0' (environment variable ROWLOCK_WORKER__POOL_SIZE): ")


@each("value", ["", "  "])
def test_an_empty_variable_is_not_taken_for_the_default(value: str) -> None:
    message = mistake(env={"ROWLOCK_DATABASE_URL": value})
    assert message.startswith(f"database = {value!r} (environment variable ROWLOCK_DATABASE_URL): is empty")


def test_the_value_that_wins_is_the_one_that_is_checked() -> None:
    assert load("worker: {pool_size: 0}", worker__pool_size=4).worker.pool_size == 4


def test_two_beats_must_fit_into_a_lease() -> None:
    assert load(worker__heartbeat_seconds=30).worker.lease_seconds == 60
    written_beat = mistake(env={"ROWLOCK_WORKER__HEARTBEAT_SECONDS": "31"})
    assert written_beat == (
        "worker.heartbeat_seconds = '31' (environment variable ROWLOCK_WORKER__HEARTBEAT_SECONDS): "
        "must be at most half of lease_seconds (60)"
    )
    written_lease = mistake("worker:\n  lease_seconds: 20s\n")
    assert written_lease == (
        "worker.lease_seconds = '20s' (rowlock.yaml:2): must be at least twice heartbeat_seconds (15)"
    )


@each(
    "file, start, meant",
    [
        ("worker:\n  pool_sise: 5\n", "worker.pool_sise = 5 (rowlock.yaml:2)", "worker.pool_size"),
        ("pool_size: 5\n", "pool_size = 5 (rowlock.yaml:1)", "worker.pool_size"),
        ("\n\nworkers:\n  pool_size: 5\n", "workers = {…} (rowlock.yaml:3)", "worker"),
        ("databse: sqlite:///a.db\n", "databse = 'sqlite:///a.db' (rowlock.yaml:1)", "database"),
        ("retention:\n  succeed_days: 1\n", "retention.succeed_days = 1 (rowlock.yaml:2)", "retention.succeeded_days"),
    ],
)
def test_an_unknown_key_gets_the_nearest_known_one(file: str, start: str, meant: str) -> None:
    assert mistake(file) == f"{start}: no such setting; did you mean {meant}?"


@each("zone", ["Nope/Zone", "../etc/passwd", "''"])
def test_a_zone_that_does_not_exist_is_refused(zone: str) -> None:
    assert "must be a time zone such as UTC" in mistake(f"api: {{zone: {zone}}}")


def test_an_unknown_key_without_a_near_one_gets_the_list_of_known_keys() -> None:
    assert mistake("worker: {zzz: 1}").endswith("metrics_host")
    first = "there are database, pooler, direct_url, app, sources, schedules, worker, transactions, retention"
    there_are = f"{first}, api, results, redis, sentry, traces, alerts"
    assert mistake("zzz: 1").endswith(there_are)
    assert mistake(env={"ROWLOCK_ZZZ": "1"}).endswith(there_are)


@each(
    "name, meant",
    [
        ("ROWLOCK_DATABASE", "ROWLOCK_DATABASE_URL"),
        ("ROWLOCK_WORKER__POOL_SISE", "ROWLOCK_WORKER__POOL_SIZE"),
        ("ROWLOCK_WORKER_POOL_SIZE", "ROWLOCK_WORKER__POOL_SIZE"),
        ("ROWLOCK_QUEUES", "ROWLOCK_WORKER__QUEUES"),
    ],
)
def test_an_unknown_variable_is_a_mistake(name: str, meant: str) -> None:
    assert mistake(env={name: "5"}) == f"{name} = '5' (environment): no such variable; did you mean {meant}?"


def test_environment_variables_that_are_not_settings_are_ignored() -> None:
    service = {
        "ROWLOCK_SERVICE_HOST": "10.0.0.7",
        "ROWLOCK_SERVICE_PORT": "8321",
        "ROWLOCK_SERVICE_PORT_HTTP": "8321",
        "ROWLOCK_PORT": "tcp://10.0.0.7:8321",
        "ROWLOCK_PORT_8321_TCP": "tcp://10.0.0.7:8321",
        "ROWLOCK_API_PORT_8321_TCP_ADDR": "10.0.0.7",
    }
    other = {"ROWLOCK_CONFIG": "a.yaml", "ROWLOCK_DEBUG": "1", "PATH": "/bin", "MY_ROWLOCK_X": "1"}
    assert load(env=service | other) == load()


def test_the_ports_of_the_settings_are_not_taken_for_variables_of_a_service() -> None:
    assert load(env={"ROWLOCK_API__PORT": "9000"}).api.port == 9000


def test_an_unknown_flag_is_a_mistake() -> None:
    assert "did you mean worker.pool_size?" in mistake(worker__pool=5)


# --- the file


def test_broken_yaml_is_shown_with_line_and_column() -> None:
    message = mistake("worker:\n  pool_size: [1, 2\n")
    assert message.startswith("rowlock.yaml, line 3, column 1: not valid YAML: ")
    assert "expected ',' or ']'" in message
    tab = mistake("worker:\n\tpool_size: 1\n")
    assert tab.startswith("rowlock.yaml, line 2, column 1: not valid YAML: ")
    assert "'\\t'" in tab
    assert "not valid YAML" in mistake("worker: \x00")
    assert "single document" in mistake("worker:\n---\nworker:\n")


def test_yaml_tags_for_python_objects_are_refused() -> None:
    assert "not valid YAML" in mistake("app: !!python/object/apply:os.getcwd []\n")


@each("text", ["- worker\n", "worker\n", "5\n"])
def test_a_file_that_is_not_a_mapping_is_refused(text: str) -> None:
    assert mistake(text).startswith("rowlock.yaml: must be a mapping")


@each("value", ["5", "[pool_size]", "yes"])
def test_a_section_that_is_not_a_mapping_is_refused(value: str) -> None:
    assert mistake(f"worker: {value}\n").startswith("worker = ")
    assert "(rowlock.yaml:1): must be a mapping with keys such as pool_size" in mistake(f"worker: {value}\n")


def test_a_key_that_is_given_twice_is_refused() -> None:
    file = "worker:\n  pool_size: 1\n  pool_size: 2\n"
    assert mistake(file) == "worker.pool_size (rowlock.yaml:3): is already on line 2"


def test_a_schedule_or_source_that_is_given_twice_is_refused() -> None:
    entry = "{task: report, every: 1h}"
    file = f"schedules:\n  nightly: {entry}\n  other: {entry}\n  nightly: {entry}\n"
    assert mistake(file) == "schedules.nightly (rowlock.yaml:4): is already on line 2"
    assert mistake("sources: {api: {total: 1}, api: {total: 2}}") == (
        "sources.api (rowlock.yaml:1): is already on line 1"
    )


def test_merged_yaml_mappings_are_read() -> None:
    file = "worker:\n  <<: {pool_size: 3, processes: 2}\n  processes: 4\n"
    assert (load(file).worker.pool_size, load(file).worker.processes) == (3, 4)
    assert mistake("worker:\n  <<: {pool_size: 0}\n").startswith("worker.pool_size = 0 (rowlock.yaml): ")
