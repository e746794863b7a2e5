"""What outlives the process, behind the stages' Protocols."""
