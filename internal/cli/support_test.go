package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/cmdline"
)

const (
	plantedIMSI  = "001010123456789"
	plantedToken = "t0ken-of-the-api"
	plantedBGP   = "bgp-passw0rd"
)

// plant makes a log, a configuration file and files with secrets, and returns the
// arguments that name them.
func plant(t *testing.T) (archive string, args []string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("journalctl", "#!/bin/sh\necho \"session of imsi-"+plantedIMSI+" with 10.45.0.1 and 2001:db8:45:1::7, args $*\"\n", 0o700)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	token, password := write("token", plantedToken, 0o600), write("password", plantedBGP, 0o600)
	example, err := os.ReadFile("../../examples/upf.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := "# " + plantedToken + "\n" + string(example) + "api: {token_file: " + token + "}\nmetrics: {listen: 'off'}\n" +
		"bgp: {asn: 65001, router_id: 192.0.2.1, peers: [{address: 192.0.2.9, asn: 65001, password_file: " + password + "}]}\n"
	archive = filepath.Join(dir, "a.tar.gz")
	return archive, []string{"support", "--output", archive, "-o", "json", "--lines", "7", "--pin-path", dir, "--config", write("c.yaml", text, 0o600)}
}

// unpack returns the files of an archive.
func unpack(t *testing.T, path string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	zipped, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(zipped); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		} else if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(h.Name, "culvert-support/")] = string(text)
	}
}

func TestSupportHidesSecrets(t *testing.T) {
	archive, args := plant(t)
	r := start(t, "upf.yaml").run(t, args...)
	if r.code != cmdline.ExitOK || !strings.Contains(r.stdout, `"items"`) {
		t.Fatalf("exit %d: %s%s", r.code, r.stdout, r.stderr)
	}
	files := unpack(t, archive)
	files["stdout"], files["stderr"] = r.stdout, r.stderr
	for name, text := range files {
		for _, secret := range []string{plantedIMSI, plantedToken, plantedBGP, "10.45.0.1", "10.45.0.2", "2001:db8:45:1:"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s has %s:\n%s", name, secret, text)
			}
		}
	}
	for name, want := range map[string]string{
		"log.txt": "imsi-id-1 with ue-1 and ue-2, args --unit=culvert.service --lines=7", "sessions.json": `"ue-1"`,
		"config/running.yaml": "10.45.0.0/16", "config/file.yaml": "password_file: /", "manifest.json": "bpf.json",
		"status.json": "pin_path", "doctor.json": "MTU headroom", "drops.json": "reason", "machine/kernel.txt": "Linux", "version.json": "v1.2.3",
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s: no %q in:\n%s", name, want, files[name])
		}
	}
}

func TestSupportKeepsIdentities(t *testing.T) {
	archive, args := plant(t)
	if r := start(t, "upf.yaml").run(t, append(args, "--identities")...); r.code != cmdline.ExitOK {
		t.Fatalf("exit %d: %s", r.code, r.stderr)
	}
	files := unpack(t, archive)
	if !strings.Contains(files["log.txt"], plantedIMSI) || !strings.Contains(files["sessions.json"], "10.45.0.1/32") {
		t.Errorf("log %s, sessions %s", files["log.txt"], files["sessions.json"])
	}
	for name, text := range files {
		if strings.Contains(text, plantedToken) || strings.Contains(text, plantedBGP) {
			t.Errorf("%s has a secret:\n%s", name, text)
		}
	}
}

func TestSupportOfDeadDaemon(t *testing.T) {
	archive, args := plant(t)
	r := command(t.Context(), "", append(args, "--socket", filepath.Join(t.TempDir(), "none.sock"))...)
	if r.code != cmdline.ExitOK || !strings.Contains(r.stderr, "the daemon does not answer") {
		t.Fatalf("exit %d: %s", r.code, r.stderr)
	}
	files := unpack(t, archive)
	if _, ok := files["status.json"]; ok || !strings.Contains(files["manifest.json"], "no daemon at") {
		t.Errorf("manifest: %s", files["manifest.json"])
	}
	if !strings.Contains(files["log.txt"], "imsi-id-1 with ue-1") || files["doctor.json"] == "" || files["config/file.yaml"] == "" {
		t.Errorf("log %q, doctor %q", files["log.txt"], files["doctor.json"])
	}
}

func TestSupportRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"support --lines 0":                       "--lines 0",
		"support --output /nowhere/a.tar.gz":      "cannot write /nowhere/a.tar.gz",
		"support --output ../cli/support_test.go": "exists",
	} {
		r := command(t.Context(), "", append(strings.Fields(args), "--socket", filepath.Join(t.TempDir(), "none.sock"))...)
		if r.code == cmdline.ExitOK || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: exit %d: %s", args, r.code, r.stderr)
		}
	}
}
