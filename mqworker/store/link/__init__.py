"""Links to servers: addresses, connections (plain, cluster, Sentinel; sync and async), subscriptions."""
