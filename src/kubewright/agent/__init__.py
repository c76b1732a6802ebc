"""The node agent: certificate manager, registration, status, lease, the kubelet's API."""
