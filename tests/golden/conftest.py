"""The address of a migrated PostgreSQL database that tests only read."""

import pytest

from support.servers.postgres import PostgresDatabases


@pytest.fixture
def template_url(template: str, postgres_server: PostgresDatabases) -> str:
    return postgres_server.database_url(template)
