"""The only package that makes an SSLContext or opens a connection: synchronous and asynchronous transports, servers, proxies, limits."""
