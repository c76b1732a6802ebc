"""The client of container runtimes: the Container Runtime Interface v1 over gRPC. No name of gRPC leaves this package."""
