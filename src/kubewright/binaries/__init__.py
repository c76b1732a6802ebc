"""Where the component binaries come from: a directory, the cache, a download, a build from Go modules."""
