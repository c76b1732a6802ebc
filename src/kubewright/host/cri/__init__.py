"""The client of container runtimes: the Container Runtime Interface v1 over gRPC. No other package uses gRPC names."""
