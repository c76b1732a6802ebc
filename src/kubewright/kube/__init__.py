"""The Kubernetes API: credentials, requests and answers, a synchronous and an asynchronous client, ensure, patches, watch."""
