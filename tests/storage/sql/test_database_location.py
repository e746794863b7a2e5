"""What the URL of a store names on this machine."""

import pytest

from toolkeep.errors import StoreUnavailable
from toolkeep.storage.sql.database_location import PostgresLocation, files_of, tls_of


@pytest.mark.spec("SBX-6")
@pytest.mark.parametrize(
    ("url", "files"),
    [
        ("postgresql://ada@db.example/books", []),
        ("postgresql://db/books?sslrootcert=system&sslmode=verify-full", []),
        ("postgresql://db/books?sslkey=/k&sslcert=%2Fc&passfile=/p", ["/c", "/k", "/p"]),
        ("postgresql:///books?host=/run/pg", ["/run/pg/.s.PGSQL.5432"]),
        ("postgresql:///books?host=/run/pg&port=5433", ["/run/pg/.s.PGSQL.5433"]),
        ("postgresql://ada:word@%2Frun%2FPG:5434/books", ["/run/PG/.s.PGSQL.5434"]),
        ("postgresql://db:port/books", []),
    ],
)
def test_the_files_that_a_url_names(url: str, files: list[str]) -> None:
    assert sorted(files_of(url)) == files


SYSTEM = {"sslmode": "verify-full", "sslrootcert": "system"}


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("postgresql:///books", {}),
        ("postgresql://localhost/books?sslmode=disable", {}),
        ("postgresql://127.0.0.2,[::1]:5433/books", {}),
        ("postgresql:///books?host=/run/pg", {}),
        ("postgresql://db.example/books", SYSTEM),
        (
            "postgresql://db.example/books?sslmode=verify-full&sslrootcert=/ca",
            SYSTEM | {"sslrootcert": "/ca"},
        ),
        ("postgresql://127.0.0.1,db.example/books", SYSTEM),
        ("postgresql://localhost/books?hostaddr=192.0.2.1", SYSTEM),
        ("postgresql://localhost.example/books", SYSTEM),
    ],
)
def test_tls_is_verified_to_every_host_but_this_machine(url: str, options: dict[str, str]) -> None:
    assert tls_of(url, {}) == options
    assert tls_of("postgresql:///books", {"PGHOST": "db.example"}) == SYSTEM


@pytest.mark.parametrize("mode", ["disable", "allow", "prefer", "require", "verify-ca"])
def test_less_than_verified_tls_to_another_machine_is_refused(mode: str) -> None:
    place = PostgresLocation(f"postgresql://keep:hunter2@db.example/books?sslmode={mode}")
    with pytest.raises(StoreUnavailable, match=f"sslmode={mode}") as refused:
        place.connect()
    assert "hunter2" not in str(refused.value)
