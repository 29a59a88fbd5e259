"""When: buckets, release gate, fair queues and the services that keep them filled."""
