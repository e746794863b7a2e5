"""What `.agent/config.yml` says: read, checked, merged. Data only; nothing in a file runs here."""
