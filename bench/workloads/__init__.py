"""What is sent: tools and calls, made up or real."""
