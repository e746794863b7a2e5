"""What an observed program asked for, and the grant that is proposed for it."""
