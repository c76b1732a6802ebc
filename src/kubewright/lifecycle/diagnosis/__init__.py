"""Why a part of this machine is not there yet: what the kubelet, the container runtime and the containers of static pods say."""
