"""Made from ../gomq.proto by `make protocols`; never edited."""
