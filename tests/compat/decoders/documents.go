package main

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"strconv"
	"strings"
)

// The token that signs cluster-info, and the pin of the trusted CA, which is the first line of a text.
const (
	tokenID     = "abcdef"
	tokenSecret = "0123456789abcdef"
)

// object is a JSON map whose names are matched exactly, as by Kubernetes' decoder; encoding/json ignores case in structs.
type object struct {
	fields map[string]any
	errs   *[]error
}

func parse(content []byte) (object, *[]error) {
	errs := new([]error)
	decoder := json.NewDecoder(bytes.NewReader(content))
	var found map[string]any
	if err := decoder.Decode(&found); err != nil {
		*errs = append(*errs, err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		*errs = append(*errs, errors.New("more than one document"))
	}
	return object{found, errs}, errs
}

func (o object) wrong(name string) { *o.errs = append(*o.errs, errors.New("wrong type: "+name)) }

func (o object) child(name string) object {
	found, ok := o.fields[name].(map[string]any)
	if !ok && o.fields[name] != nil {
		o.wrong(name)
	}
	return object{found, o.errs}
}

func (o object) list(name string) []any {
	found, ok := o.fields[name].([]any)
	if !ok && o.fields[name] != nil {
		o.wrong(name)
	}
	return found
}

func (o object) text(name string) string {
	found, ok := o.fields[name].(string)
	if !ok && o.fields[name] != nil {
		o.wrong(name)
	}
	return found
}

func (o object) flag(name string) bool {
	found, ok := o.fields[name].(bool)
	if !ok && o.fields[name] != nil {
		o.wrong(name)
	}
	return found
}

func (o object) data(name string) []byte {
	found, err := base64.StdEncoding.DecodeString(o.text(name))
	if err != nil {
		*o.errs = append(*o.errs, err)
	}
	return found
}

// named returns the entries of a list of named objects, as client-go does: names must be unique.
func (o object) named(plural, singular string) map[string]object {
	found := map[string]object{}
	for _, entry := range o.list(plural) {
		fields, ok := entry.(map[string]any)
		if !ok && entry != nil {
			o.wrong(plural)
		}
		one := object{fields, o.errs}
		name := one.text("name")
		if _, known := found[name]; known {
			*o.errs = append(*o.errs, errors.New("a name is there twice"))
		}
		found[name] = one.child(singular)
	}
	return found
}

type access struct {
	server, token, name string
	authority           []byte
	certificate, key    []byte
	insecure            bool
}

// kubeconfig returns the cluster and the user of a kubeconfig for discovery: those of the current context, or the unnamed cluster.
func kubeconfig(content []byte) (access, error) {
	document, errs := parse(content)
	if kind, version := document.text("kind"), document.text("apiVersion"); kind != "" && kind != "Config" || version != "" && version != "v1" {
		return access{}, errRefused
	}
	clusters, users, contexts := document.named("clusters", "cluster"), document.named("users", "user"), document.named("contexts", "context")
	var cluster, user object
	if current := document.text("current-context"); current != "" {
		context, known := contexts[current]
		if !known {
			return access{}, errRefused
		}
		if cluster, known = clusters[context.text("cluster")]; !known {
			return access{}, errRefused
		}
		if user, known = users[context.text("user")]; !known && context.text("user") != "" {
			return access{}, errRefused
		}
	} else {
		cluster = clusters[""]
	}
	for _, every := range clusters {
		every.data("certificate-authority-data")
	}
	if cluster.errs == nil {
		return access{}, errRefused
	}
	user.errs = errs
	found := access{
		server:      cluster.text("server"),
		name:        cluster.text("tls-server-name"),
		authority:   cluster.data("certificate-authority-data"),
		insecure:    cluster.flag("insecure-skip-tls-verify"),
		token:       user.text("token"),
		certificate: user.data("client-certificate-data"),
		key:         user.data("client-key-data"),
	}
	if len(*errs) > 0 || !strings.HasPrefix(found.server, "https://") {
		return access{}, errRefused
	}
	return found, nil
}

func (a access) line() (*line, []*x509.Certificate, error) {
	found, err := certificates(a.authority)
	var out line
	out.add("server", a.server)
	for _, one := range found {
		out.add("ca", string(one.Raw))
	}
	return &out, found, err
}

func readKubeconfig(content []byte) (string, error) {
	found, err := kubeconfig(content)
	if err != nil {
		return "", err
	}
	out, _, err := found.line()
	out.add("token", found.token)
	out.add("name", found.name)
	out.add("client", string(found.certificate), string(found.key))
	out.flag("insecure", found.insecure)
	return out.String(), err
}

// readClusterInfo reads the ConfigMap as kubeadm's discovery does (cmd/kubeadm/app/discovery/token, k8s.io/cluster-bootstrap/token/jws).
func readClusterInfo(content []byte) (string, error) {
	pinned, content, _ := bytes.Cut(content, []byte("\n"))
	document, errs := parse(content)
	data := document.child("data")
	text, signature := data.text("kubeconfig"), data.text("jws-kubeconfig-"+tokenID)
	if len(*errs) > 0 || text == "" || !hmac.Equal([]byte(detached(text)), []byte(signature)) {
		return "", errRefused
	}
	found, err := kubeconfig([]byte(text))
	if err != nil {
		return "", err
	}
	out, authorities, err := found.line()
	for _, one := range authorities {
		if pin(one) == string(decodeHex(pinned)) {
			return out.String(), err
		}
	}
	return "", errRefused
}

func decodeHex(content []byte) []byte {
	found := make([]byte, len(content)/2)
	for i := range found {
		value, _ := strconv.ParseUint(string(content[2*i:2*i+2]), 16, 8)
		found[i] = byte(value)
	}
	return found
}

func detached(text string) string {
	encode := base64.RawURLEncoding.EncodeToString
	header := encode([]byte(`{"alg":"HS256","kid":"` + tokenID + `"}`))
	mac := hmac.New(sha256.New, []byte(tokenSecret))
	mac.Write([]byte(header + "." + encode([]byte(text))))
	return header + ".." + encode(mac.Sum(nil))
}

var joinKey *rsa.PrivateKey

func readJoinKey(content []byte) (string, error) {
	block, _ := pem.Decode(content)
	found, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	joinKey = found
	return "key", err
}

// readJoinRequest decrypts a NodeJoinRequest as oneinfra's hub does (20.09, internal/pkg/crypto).
func readJoinRequest(content []byte) (string, error) {
	document, errs := parse(content)
	spec := document.child("spec")
	sealed, err := base64.RawStdEncoding.DecodeString(spec.text("symmetricKey"))
	if err != nil {
		return "", err
	}
	key, err := rsa.DecryptOAEP(sha256.New(), nil, joinKey, sealed, nil)
	if err != nil {
		return "", err
	}
	var out line
	for _, name := range []string{"apiServerEndpoint", "vpnPublicKey"} {
		text := spec.text(name)
		if text != "" {
			if text, err = open(key, text); err != nil {
				return "", err
			}
		}
		out.add(name, text)
	}
	var names []string
	for _, entry := range spec.list("extraSANs") {
		text, ok := entry.(string)
		if !ok {
			return "", errRefused
		}
		name, err := open(key, text)
		if err != nil {
			return "", err
		}
		names = append(names, name)
	}
	out.add("extraSANs", names...)
	if len(*errs) > 0 {
		return "", errRefused
	}
	return out.String(), nil
}

func open(key []byte, text string) (string, error) {
	sealed, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return "", err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return "", err
	}
	mode, err := cipher.NewGCM(block)
	if err != nil {
		return "", err
	}
	if len(sealed) < mode.NonceSize() {
		return "", errRefused
	}
	found, err := mode.Open(nil, sealed[:mode.NonceSize()], sealed[mode.NonceSize():], nil)
	return string(found), err
}
