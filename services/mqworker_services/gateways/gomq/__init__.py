"""GOMQ: topics for programs that speak gRPC. A gateway, and a small client; both need the extra `grpc`."""
