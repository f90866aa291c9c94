"""Several ranks that run the shards of one program together."""
