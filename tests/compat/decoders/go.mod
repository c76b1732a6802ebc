module kubewright.dev/tests/decoders

go 1.26
