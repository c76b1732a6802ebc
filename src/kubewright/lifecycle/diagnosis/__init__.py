"""The reasons why a part of this machine is not ready: from the kubelet, the container runtime and the containers of static pods."""
