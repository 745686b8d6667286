package cluster

import (
	"crypto"
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

// certificates of kube-apiserver as a client of kubelets, each signed by the one
// before it and the first by itself.
var certificates = []struct {
	file     string
	template x509.Certificate
}{
	{"kubelet-ca", x509.Certificate{
		Subject: pkix.Name{CommonName: "culvert lab"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}},
	{"kubelet-client", x509.Certificate{
		Subject:  pkix.Name{CommonName: "kube-apiserver", Organization: []string{"system:masters"}},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}},
}

// writeCertificates writes FILE.crt and FILE.key of each.
func writeCertificates(in *instance.Instance, n *topology.Node) error {
	var signer crypto.Signer
	var by *x509.Certificate
	for i, c := range certificates {
		key, err := writeKey(in.File(n, c.file+".key"))
		if err != nil {
			return err
		}
		t := c.template
		t.SerialNumber = big.NewInt(int64(i + 1))
		t.NotBefore, t.NotAfter = time.Now().Add(-time.Hour), time.Now().AddDate(1, 0, 0)
		if signer == nil {
			signer, by = key, &t
		}
		der, err := x509.CreateCertificate(rand.Reader, &t, by, key.Public(), signer)
		if err != nil {
			return err
		}
		if err := os.WriteFile(in.File(n, c.file+".crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
			return err
		}
		signer, by = key, &t
	}
	return nil
}

// writeKey makes a private key and writes it to a file.
func writeKey(file string) (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	return key, errors.Join(err, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600))
}
