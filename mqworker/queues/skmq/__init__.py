"""SIKONG-MQ: messages for remote consumers, which are pushed to them."""
