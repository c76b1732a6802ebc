"""kubeadm's output formats: json, yaml, kyaml, Go templates and Kubernetes' JSONPath, as pure functions over plain values.

`choosing` parses the value of `-o`; each other module is one format or a part of one. An invalid template is a
`Problem`, which `choosing` converts to a UsageError. Nothing here reads a file, a clock or the environment except
`choosing.choose`, which reads the file of `go-template-file=…` and `jsonpath-file=…`.
"""
