"""A reversible rewriting of schemas for strict modes that know neither optional nor open."""
