package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"time"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// keyPair is a key and the certificate of it, both in PEM.
type keyPair struct{ key, certificate []byte }

// writeKubeletClient makes who kube-apiserver is towards kubelets, and the
// authority that says so.
func writeKubeletClient(in *instance.Instance, n *topology.Node) error {
	authority, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	ca := &x509.Certificate{
		Subject: pkix.Name{CommonName: "culvert lab"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	self, err := certify(ca, ca, &authority.PublicKey, authority)
	if err != nil {
		return err
	}
	client, err := clientOf(ca, authority)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(in.File(n, "kubelet-ca.crt"), self, 0o644),
		os.WriteFile(in.File(n, "kubelet-client.crt"), client.certificate, 0o644),
		os.WriteFile(in.File(n, "kubelet-client.key"), client.key, 0o600))
}

// clientOf is a client that may do everything.
func clientOf(ca *x509.Certificate, authority *ecdsa.PrivateKey) (p keyPair, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return p, err
	}
	if p.key, err = encodeKey(key); err != nil {
		return p, err
	}
	p.certificate, err = certify(&x509.Certificate{
		Subject:  pkix.Name{CommonName: "kube-apiserver", Organization: []string{"system:masters"}},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca, &key.PublicKey, authority)
	return p, err
}

func certify(c, by *x509.Certificate, key *ecdsa.PublicKey, authority *ecdsa.PrivateKey) ([]byte, error) {
	number, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	c.SerialNumber = number
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().AddDate(1, 0, 0)
	der, err := x509.CreateCertificate(rand.Reader, c, by, key, authority)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}
