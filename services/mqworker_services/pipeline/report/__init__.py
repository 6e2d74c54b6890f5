"""Reports over the lake: what ran, how long it waited and ran, what was slow, what failed and why."""
