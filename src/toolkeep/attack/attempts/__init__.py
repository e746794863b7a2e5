"""What hostile tools do. Imported by workers, so standard library only; one module for each kind."""
