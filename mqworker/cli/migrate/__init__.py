"""`mqworker migrate`: the way over from another library, and back."""
