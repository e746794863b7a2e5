"""`Keep` and the pipeline that takes a call through the stages."""
