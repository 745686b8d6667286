package install

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestInstall(t *testing.T) {
	dir := t.TempDir()
	f := Files{Plugin: filepath.Join(dir, "image", "culvert-cni"), BinDir: filepath.Join(dir, "bin"), ConfDir: filepath.Join(dir, "net.d"),
		Version: "1.0.0", Chain: []string{"portmap", "bandwidth"}}
	write(t, f.Plugin, "the program")
	write(t, filepath.Join(f.BinDir, "portmap"), "another's")
	write(t, filepath.Join(f.ConfDir, "99-other.conflist"), "{}")
	program, conf := filepath.Join(f.BinDir, "culvert-cni"), filepath.Join(f.ConfDir, "10-culvert.conflist")

	changed, err := f.Install()
	if err != nil || !slices.Equal(changed, []string{program, conf}) {
		t.Fatalf("changed %v, %v", changed, err)
	}
	text, err := os.ReadFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		CNIVersion string
		Name       string
		Plugins    []struct {
			Type         string
			Capabilities map[string]bool
		}
	}
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	if list.CNIVersion != "1.0.0" || list.Name != "culvert" || len(list.Plugins) != 2 || list.Plugins[0].Type != "culvert-cni" ||
		list.Plugins[1].Type != "portmap" || !list.Plugins[1].Capabilities["portMappings"] {
		t.Errorf("the configuration is %s", text)
	}
	if info, err := os.Stat(program); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", info, err)
	}
	if changed, err := f.Install(); err != nil || len(changed) != 0 {
		t.Errorf("the second time changed %v, %v", changed, err)
	}
	// A program that runs cannot be written to, but can be replaced.
	before, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	write(t, f.Plugin, "the next program")
	if changed, err := f.Install(); err != nil || !slices.Equal(changed, []string{program}) {
		t.Errorf("an upgrade changed %v, %v", changed, err)
	}
	if after, err := os.Stat(program); err != nil || os.SameFile(before, after) {
		t.Errorf("an upgrade wrote into the program, %v", err)
	}
	if removed, err := f.Remove(); err != nil || !slices.Equal(removed, []string{conf, program}) {
		t.Errorf("removed %v, %v", removed, err)
	}
	if removed, err := f.Remove(); err != nil || len(removed) != 0 {
		t.Errorf("removed %v again, %v", removed, err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil || len(left) != 3 {
		t.Errorf("left are %v, %v", left, err)
	}
	hidden, err := filepath.Glob(filepath.Join(dir, "*", ".*"))
	if err != nil || len(hidden) != 0 {
		t.Errorf("left are %v, %v", hidden, err)
	}
}

// The configuration comes when somebody says so.
func TestInstallThenConfigure(t *testing.T) {
	dir := t.TempDir()
	f := Files{Plugin: filepath.Join(dir, "culvert-cni"), BinDir: filepath.Join(dir, "bin"), Version: "1.1.0"}
	write(t, f.Plugin, "the program")
	write(t, filepath.Join(f.BinDir, "other"), "another's")
	if changed, err := f.Install(); err != nil || !slices.Equal(changed, []string{filepath.Join(f.BinDir, "culvert-cni")}) {
		t.Errorf("changed %v, %v", changed, err)
	}
	f.ConfDir = filepath.Join(dir, "net.d")
	if _, err := f.Configure(); err == nil {
		t.Error("there is no folder")
	}
	write(t, filepath.Join(f.ConfDir, "99-other.conflist"), "{}")
	conf := filepath.Join(f.ConfDir, "10-culvert.conflist")
	if changed, err := f.Configure(); err != nil || !slices.Equal(changed, []string{conf}) {
		t.Errorf("changed %v, %v", changed, err)
	}
	if changed, err := f.Configure(); err != nil || len(changed) != 0 {
		t.Errorf("the second time changed %v, %v", changed, err)
	}
	if text, err := os.ReadFile(conf); err != nil || !strings.Contains(string(text), `"cniVersion": "1.1.0"`) {
		t.Errorf("the configuration is %s, %v", text, err)
	}
}

func TestInstallFails(t *testing.T) {
	dir := t.TempDir()
	f := Files{Plugin: filepath.Join(dir, "culvert-cni"), BinDir: dir, ConfDir: filepath.Join(dir, "none")}
	if _, err := f.Install(); err == nil {
		t.Error("there is no program")
	}
	write(t, f.Plugin, "the program")
	if _, err := f.Install(); err == nil {
		t.Error("there is no folder")
	}
}

func TestPrepare(t *testing.T) {
	sys := t.TempDir()
	for name, value := range map[string]string{
		"net/ipv4/ip_forward": "0\n", "net/ipv6/conf/all/forwarding": "1\n",
		"net/ipv6/conf/all/accept_ra": "1\n", "net/ipv6/conf/eth0/accept_ra": "1\n", "net/ipv6/conf/eth1/accept_ra": "0\n",
		"net/ipv4/conf/all/rp_filter": "0\n", "net/ipv4/conf/eth0/rp_filter": "1\n", "net/ipv4/conf/default/rp_filter": "2\n",
	} {
		write(t, filepath.Join(sys, name), value)
	}
	want := []string{"net.ipv6.conf.all.accept_ra = 2", "net.ipv6.conf.eth0.accept_ra = 2", "net.ipv4.conf.eth0.rp_filter = 2", "net.ipv4.ip_forward = 1"}
	if changed, err := Prepare(sys); err != nil || !slices.Equal(changed, want) {
		t.Errorf("changed %v, %v, want %v", changed, err, want)
	}
	if changed, err := Prepare(sys); err != nil || len(changed) != 0 {
		t.Errorf("the second time changed %v, %v", changed, err)
	}
	if _, err := Prepare(filepath.Join(sys, "none")); err == nil {
		t.Error("there are no sysctls")
	}
}
