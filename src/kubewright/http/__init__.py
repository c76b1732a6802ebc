"""The one place that makes an SSLContext or opens a connection: synchronous and asynchronous transports, servers, proxies, limits."""
