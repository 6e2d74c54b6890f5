"""Large payloads elsewhere: where they go, and how what nobody needs any more is swept."""
