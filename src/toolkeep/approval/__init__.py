"""DOES A PERSON AGREE: a permitted call becomes an approved one, or is refused."""
