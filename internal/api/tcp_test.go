package api_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/api/apitest"
	"github.com/culvert-net/culvert/internal/config"
)

// certificate writes a certificate for 127.0.0.1 and its key.
func certificate(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "culvert"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"agents.culvert"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return write(t, "cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), 0o644),
		write(t, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})), 0o600)
}

func write(t *testing.T, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

const token = "0123456789abcdef0123456789abcdef"

func TestTLSAndToken(t *testing.T) {
	cert, key := certificate(t)
	tokenFile := write(t, "token", token+"\n", 0o600)
	// A certificate for all of this machine's addresses would need a name:
	// listening everywhere, the test calls by loopback.
	s := serve(t, config.API{Listen: "0.0.0.0:0", TLSCert: cert, TLSKey: key, TokenFile: tokenFile}, apitest.New(load(t, "edge.yaml")), nil)
	_, port, err := net.SplitHostPort(s.Addresses()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	address := "127.0.0.1:" + port
	if status, err := dial(t, api.Endpoint{Address: address, CA: cert, TokenFile: tokenFile}).Status(t.Context()); err != nil || status.Version != "v1.2.3" {
		t.Errorf("with certificate and token: %v, %v", status, err)
	}
	for name, e := range map[string]api.Endpoint{
		"no token":       {Address: address, CA: cert},
		"another token":  {Address: address, CA: cert, TokenFile: write(t, "other", strings.Repeat("x", 32), 0o600)},
		"longer token":   {Address: address, CA: cert, TokenFile: write(t, "longer", token+"0", 0o600)},
		"without TLS":    {Address: address, TokenFile: tokenFile},
		"another issuer": {Address: address, CA: otherCA(t), TokenFile: tokenFile},
	} {
		if _, err := dial(t, e).Status(t.Context()); err == nil {
			t.Errorf("%s: answered", name)
		}
	}
	// Without the word Bearer a token is none.
	request, err := http.NewRequest(http.MethodPost, "https://"+address+"/culvert.v1.Culvert/Status", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", token)
	if code := status(t, cert, request); code != http.StatusUnauthorized {
		t.Errorf("bare token: %d", code)
	}
}

// A token for policies lists them, and does nothing else; beside it the other token does all.
func TestPoliciesToken(t *testing.T) {
	cert, key := certificate(t)
	all, policies := write(t, "token", token, 0o600), write(t, "policies", strings.Repeat("p", 32), 0o600)
	for name, c := range map[string]config.API{
		"alone":            {PoliciesTokenFile: policies},
		"beside the other": {TokenFile: all, PoliciesTokenFile: policies},
	} {
		c.Listen, c.TLSCert, c.TLSKey = "[::]:0", cert, key
		s := serve(t, c, apitest.New(load(t, "edge.yaml")), nil)
		_, port, err := net.SplitHostPort(s.Addresses()[0].String())
		if err != nil {
			t.Fatal(err)
		}
		e := api.Endpoint{Address: "127.0.0.1:" + port, CA: cert, TokenFile: policies}
		reader := dial(t, e)
		if list, err := reader.Policies(t.Context(), ""); err != nil || len(list) == 0 {
			t.Errorf("%s: policies: %v, %v", name, list, err)
		}
		for what, call := range map[string]func() error{
			"Status": func() error { _, err := reader.Status(t.Context()); return err },
			"Add":    func() error { _, err := reader.Add(t.Context(), &config.Config{}); return err },
			"Pods":   func() error { _, err := reader.Pods(t.Context(), ""); return err },
			"Backup": func() error { return reader.Backup(t.Context(), io.Discard) },
			"Trace":  func() error { return reader.Trace(t.Context(), agent.TraceFilter{}, nil, nil) },
		} {
			if err := call(); err == nil || !strings.Contains(err.Error(), "403") {
				t.Errorf("%s: %s: %v", name, what, err)
			}
		}
		e.TokenFile = all
		if _, err := dial(t, e).Status(t.Context()); (err == nil) != (c.TokenFile != "") {
			t.Errorf("%s: the token for all: %v", name, err)
		}
		// The certificate counts for the name that the client asks for, and for no other.
		e.TokenFile = policies
		for server, may := range map[string]bool{"agents.culvert": true, "other.culvert": false} {
			e.ServerName = server
			if _, err := dial(t, e).Policies(t.Context(), ""); (err == nil) != may {
				t.Errorf("%s: as %s: %v", name, server, err)
			}
		}
	}
}

func otherCA(t *testing.T) string {
	t.Helper()
	cert, _ := certificate(t)
	return cert
}

// Whatever config.Validate lets through, Listen does not open the API to the
// network without both.
func TestBeyondLoopback(t *testing.T) {
	cert, key := certificate(t)
	tokenFile := write(t, "token", token, 0o600)
	handler := api.NewHandler(apitest.New(load(t, "edge.yaml")), nil)
	for name, c := range map[string]config.API{
		"plain":      {Listen: "0.0.0.0:0"},
		"token only": {Listen: "0.0.0.0:0", TokenFile: tokenFile},
		"TLS only":   {Listen: "0.0.0.0:0", TLSCert: cert, TLSKey: key},
		"any IPv6":   {Listen: "[::]:0"},
	} {
		s, err := api.Listen(c, handler, slog.Default())
		if err == nil {
			s.Close()
			t.Errorf("%s: it listens", name)
		} else if !strings.Contains(err.Error(), "beyond loopback") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTokenFile(t *testing.T) {
	for name, path := range map[string]string{
		"open to others": write(t, "a", token, 0o644),
		"short":          write(t, "b", "secret", 0o600),
		"two":            write(t, "c", token+"\n"+token, 0o600),
		"missing":        filepath.Join(t.TempDir(), "none"),
	} {
		if got, err := api.ReadToken(path); err == nil {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// On loopback nobody is asked who they are: a browser must not be led here by
// a name that its owner lets point to loopback, nor by another origin's page.
func TestLoopback(t *testing.T) {
	s := serve(t, config.API{Listen: "127.0.0.1:0"}, apitest.New(load(t, "edge.yaml")), nil)
	address := s.Addresses()[0].String()
	if _, err := dial(t, api.Endpoint{Address: address}).Status(t.Context()); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		host, contentType, origin string
		want                      int
	}{
		{address, "application/json", "", http.StatusOK},
		{"localhost:1", "application/json", "", http.StatusOK},
		{"[::1]", "application/json", "", http.StatusOK},
		{address, "application/json", "http://evil.example", http.StatusForbidden},
		{"evil.example", "application/json", "", http.StatusForbidden},
		{"evil.example", "application/json", "http://evil.example", http.StatusForbidden},
		{"evil.example:80", "application/json", "", http.StatusForbidden},
		{"192.0.2.1", "application/json", "", http.StatusForbidden},
		{address, "text/plain", "", http.StatusUnsupportedMediaType},
	} {
		request, err := http.NewRequest(http.MethodPost, "http://"+address+"/culvert.v1.Culvert/Status", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		request.Host = c.host
		request.Header.Set("Content-Type", c.contentType)
		if c.origin != "" {
			request.Header.Set("Origin", c.origin)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != c.want {
			t.Errorf("%s, %s: %d, want %d", c.host, c.contentType, response.StatusCode, c.want)
		}
		if h := response.Header.Get("Access-Control-Allow-Origin"); h != "" {
			t.Errorf("%s: another origin is allowed: %s", c.host, h)
		}
	}
}

func status(t *testing.T, ca string, request *http.Request) int {
	t.Helper()
	data, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(data)
	request.Header.Set("Content-Type", "application/json")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}
