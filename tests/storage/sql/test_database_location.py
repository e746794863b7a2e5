"""What the URL of a store names on this machine."""

import pytest

from toolkeep.storage.sql.database_location import files_of


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
