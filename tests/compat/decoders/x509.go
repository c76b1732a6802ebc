package main

import (
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/url"
	"strconv"
)

// readRequest reads a certificate request as kube-apiserver does (pkg/apis/certificates ParseCSR).
func readRequest(content []byte) (string, error) {
	block, _ := pem.Decode(content)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return "", errRefused
	}
	found, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return "", err
	}
	var out line
	addName(&out, found.Subject)
	addNames(&out, found.DNSNames, found.EmailAddresses, found.IPAddresses, found.URIs)
	for _, one := range found.Extensions {
		out.add("extension", one.Id.String(), strconv.FormatBool(one.Critical), string(one.Value))
	}
	out.add("key", string(found.RawSubjectPublicKeyInfo))
	out.add("signed", string(found.RawTBSCertificateRequest))
	out.flag("valid", found.CheckSignature() == nil)
	return out.String(), nil
}

// certificates reads a bundle as client-go does (util/cert ParseCertsPEM): one unreadable certificate invalidates it.
func certificates(content []byte) ([]*x509.Certificate, error) {
	var found []*x509.Certificate
	for _, block := range blocks(content) {
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			continue
		}
		one, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		found = append(found, one)
	}
	if len(found) == 0 {
		return nil, errRefused
	}
	return found, nil
}

func readCertificates(content []byte) (string, error) {
	found, err := certificates(content)
	var out line
	for _, one := range found {
		addName(&out, one.Subject)
		addNames(&out, one.DNSNames, one.EmailAddresses, one.IPAddresses, one.URIs)
		out.flag("authority", one.IsCA)
		length := -1
		if one.IsCA {
			length = one.MaxPathLen
		}
		out.add("number", one.SerialNumber.String(), strconv.Itoa(length))
		out.add("times", strconv.FormatInt(one.NotBefore.Unix(), 10), strconv.FormatInt(one.NotAfter.Unix(), 10))
		var usages []string
		for _, usage := range one.ExtKeyUsage {
			switch usage {
			case x509.ExtKeyUsageServerAuth:
				usages = append(usages, "serverAuth")
			case x509.ExtKeyUsageClientAuth:
				usages = append(usages, "clientAuth")
			}
		}
		out.add("usages", usages...)
		out.add("pin", pin(one))
	}
	return out.String(), err
}

// pin returns the pin as kubeadm computes it (cmd/kubeadm/app/util/pubkeypin Hash).
func pin(certificate *x509.Certificate) string {
	digest := sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
	return string(digest[:])
}

func addName(out *line, name pkix.Name) {
	out.add("cn", name.CommonName)
	out.add("o", copied(name.Organization)...)
}

func addNames(out *line, dns, emails []string, ips []net.IP, uris []*url.URL) {
	out.add("dns", copied(dns)...)
	out.add("email", copied(emails)...)
	var texts []string
	for _, ip := range ips {
		texts = append(texts, ip.String())
	}
	out.add("ip", texts...)
	texts = nil
	for _, uri := range uris {
		texts = append(texts, uri.String())
	}
	out.add("uri", texts...)
}
