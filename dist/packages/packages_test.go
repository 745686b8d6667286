// Package packages_test looks at the packages: what is in them, what their scripts and their
// configuration are, and that two builds are equal. Programs are small files here; `make
// reproducible` compares whole releases, and the laboratory install runs the packages.
package packages_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/cli"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/labcli"
)

const (
	root  = "../.."
	epoch = "SOURCE_DATE_EPOCH=1700000000"
)

// run runs a command in a folder, and returns what it printed.
func run(t *testing.T, folder string, environment []string, name string, args ...string) (string, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir = folder
	c.Env = append(os.Environ(), environment...)
	out, err := c.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func must(t *testing.T, folder string, environment []string, name string, args ...string) string {
	t.Helper()
	out, err := run(t, folder, environment, name, args...)
	if err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return out
}

// programs are files in the place of programs: each writes down how it is called.
func programs(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for _, name := range []string{"culvert", "culvert-cni", "culvert-lab"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\necho \""+name+" $*\" >> /calls\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// build makes the packages of the tree in a folder, and returns where they are.
func build(t *testing.T, tree, programs, version string) string {
	t.Helper()
	out := t.TempDir()
	must(t, tree, []string{epoch, "PROGRAMS=" + programs}, "tools/package/build.sh", out, version, runtime.GOARCH)
	return out
}

// files are the paths in a package, without folders.
func files(t *testing.T, folder, name string) (list []string) {
	t.Helper()
	if strings.HasSuffix(name, ".rpm") {
		for _, line := range strings.Split(must(t, folder, nil, "rpm", "-qp", "--queryformat", "[%{FILEMODES:perms} %{FILENAMES}\n]", name), "\n") {
			if mode, path, ok := strings.Cut(line, " "); ok && strings.HasPrefix(mode, "-") {
				list = append(list, path)
			}
		}
		return list
	}
	for _, line := range strings.Split(must(t, folder, nil, "dpkg-deb", "-c", name), "\n") {
		if fields := strings.Fields(line); strings.HasPrefix(fields[0], "-") {
			list = append(list, strings.TrimPrefix(fields[5], "."))
		}
	}
	return list
}

// pages are the manual pages of the commands below one that users see.
func pages(c *cobra.Command, under string) (list []string) {
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && !sub.IsAdditionalHelpTopicCommand() {
			name := under + "-" + sub.Name()
			list = append(append(list, "/usr/share/man/man1/"+name+".1.gz"), pages(sub, name)...)
		}
	}
	return list
}

func TestPackages(t *testing.T) {
	small := programs(t)
	first := build(t, root, small, "v1.2.3")
	deb := "culvert_1.2.3-1_" + runtime.GOARCH + ".deb"
	lab := "culvert-lab_1.2.3-1_" + runtime.GOARCH + ".deb"
	rpm := map[string]string{"amd64": "culvert-1.2.3-1.x86_64.rpm", "arm64": "culvert-1.2.3-1.aarch64.rpm"}[runtime.GOARCH]
	ofLab := pages(labcli.New(""), "culvert")
	command := cli.New("")
	command.InitDefaultHelpCmd()
	ofCulvert := append(slices.DeleteFunc(pages(command, "culvert"), func(p string) bool { return slices.Contains(ofLab, p) }), "/usr/share/man/man1/culvert.1.gz")
	if len(ofCulvert) < 50 || len(ofLab) < 20 {
		t.Fatalf("there are %d and %d commands: there were more", len(ofCulvert), len(ofLab))
	}
	both := []string{"/usr/bin/culvert", "/usr/bin/culvert-cni", "/usr/lib/systemd/system/culvert.service", "/etc/culvert/culvert.yaml",
		"/usr/share/bash-completion/completions/culvert", "/usr/share/fish/vendor_completions.d/culvert.fish", "/usr/share/doc/culvert/copyright",
		"/usr/share/doc/culvert/changelog.gz", "/usr/share/doc/culvert/third-party.gz", "/usr/share/doc/culvert/culvert.schema.json", "/usr/share/doc/culvert/examples/upf.yaml"}
	for name, want := range map[string][]string{
		deb: append(slices.Concat(both, ofCulvert), "/usr/share/zsh/vendor-completions/_culvert", "/usr/share/doc/culvert/changelog.Debian.gz"),
		rpm: append(slices.Concat(both, ofCulvert), "/usr/share/zsh/site-functions/_culvert"),
		lab: append(ofLab, "/usr/bin/culvert-lab", "/usr/share/doc/culvert-lab/copyright"),
	} {
		got := files(t, first, name)
		for _, file := range want {
			if !slices.Contains(got, file) {
				t.Errorf("%s has no %s", name, file)
			}
		}
		for _, file := range got {
			if strings.Contains(file, "/man1/") && !slices.Contains(want, file) {
				t.Errorf("%s has %s, and no command is called so", name, file)
			}
		}
	}
	for field, want := range map[string]string{"Version": "1.2.3-1", "Depends": "culvert (= 1.2.3-1), iproute2, ethtool"} {
		if got := must(t, first, nil, "dpkg-deb", "-f", lab, field); got != want {
			t.Errorf("%s: %q, want %q", field, got, want)
		}
	}
	control := t.TempDir()
	must(t, first, nil, "dpkg-deb", "-e", deb, control)
	if text, err := os.ReadFile(filepath.Join(control, "conffiles")); err != nil || strings.TrimSpace(string(text)) != "/etc/culvert/culvert.yaml" {
		t.Errorf("configuration files: %q, %v", text, err)
	}
	if got := must(t, first, nil, "rpm", "-qp", "--configfiles", rpm); got != "/etc/culvert/culvert.yaml" {
		t.Errorf("configuration files of the rpm: %q", got)
	}
	t.Run("rpm runs the scripts", func(t *testing.T) {
		next := build(t, root, small, "v1.2.4")
		runScripts(t, filepath.Join(first, rpm), filepath.Join(next, strings.Replace(rpm, "1.2.3", "1.2.4", 1)))
	})
	t.Run("two builds are equal", func(t *testing.T) { sameBuild(t, first, small) })
}

// sameBuild builds again from a copy of the tree in another folder.
func sameBuild(t *testing.T, first, small string) {
	tree := t.TempDir()
	must(t, root, nil, "bash", "-c", `git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d "" f; do [ ! -e "$f" ] || printf '%s\0' "$f"; done 2>/dev/null | xargs -0 cp --parents -t "$1"`, "bash", tree)
	second := build(t, tree, small, "v1.2.3")
	entries, err := os.ReadDir(first)
	if err != nil || len(entries) != 4 {
		t.Fatalf("%v, %v", entries, err)
	}
	for _, e := range entries {
		a, err := os.ReadFile(filepath.Join(first, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(second, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s: two builds differ", e.Name())
		}
	}
}

func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob("*/p[or]*")
	if err != nil || len(scripts) != 6 {
		t.Fatalf("%v, %v", scripts, err)
	}
	must(t, ".", nil, "shellcheck", scripts...)
}

// The unit starts with the examples of the configuration file, and not with the file as it is
// installed, which says nothing.
func TestConfiguration(t *testing.T) {
	text, err := os.ReadFile("../culvert.yaml")
	if err != nil {
		t.Fatal(err)
	}
	unit, err := os.ReadFile("../culvert.service")
	if err != nil {
		t.Fatal(err)
	}
	condition := regexp.MustCompile(`(?m)^ExecCondition=grep -qE "(.*)" /etc/culvert/culvert.yaml$`).FindSubmatch(unit)
	if condition == nil {
		t.Fatal("the unit has no ExecCondition")
	}
	configured := regexp.MustCompile("(?m)" + string(condition[1]))
	if configured.Match(text) {
		t.Error("the unit starts with the configuration as it is installed")
	}
	parts := regexp.MustCompile(`(?m)^# --- .* ---$`).Split(string(text), -1)
	if len(parts) != 4 {
		t.Fatalf("there are %d parts", len(parts))
	}
	settings := strings.SplitN(parts[3], "\n#\n", 3)[2]
	for _, part := range parts[1:3] {
		example := regexp.MustCompile("(?m)^# ?").ReplaceAllString(part+settings, "")
		if _, err := config.Parse([]byte(example)); err != nil {
			t.Errorf("%v:\n%s", err, example)
		}
		if !configured.MatchString(example) {
			t.Errorf("the unit does not start with:\n%s", example)
		}
	}
}

func TestVersions(t *testing.T) {
	var last string
	for _, v := range []struct{ described, want string }{ // ascending
		{"a9e4c09e", "0.0.0~20231114221320.ga9e4c09e"},
		{"v1.3.0-rc.1", "1.3.0~rc.1"},
		{"v1.3.0-rc.1-2-gabcdef1", "1.3.0~rc.1+2.gabcdef1"},
		{"v1.3.0", "1.3.0"},
		{"v1.3.0-4-gabcdef1", "1.3.0+4.gabcdef1"},
		{"v1.3.0-4-gabcdef1-dirty", "1.3.0+4.gabcdef1.dirty"},
		{"v1.3.1-dirty", "1.3.1+dirty"},
		{"v1.10.0", "1.10.0"},
	} {
		got := must(t, root, []string{epoch}, "tools/package/version.sh", v.described)
		if got != v.want {
			t.Errorf("%s is %s: want %s", v.described, got, v.want)
		}
		if last != "" {
			must(t, root, nil, "dpkg", "--compare-versions", last, "lt", got)
		}
		last = got
	}
	if out, err := run(t, root, nil, "tools/package/version.sh", "v1"); err == nil || !strings.Contains(out, "v1.2.3") {
		t.Errorf("v1: %v, %s", err, out)
	}
}

func TestNotes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "CHANGELOG.md")
	if err := os.WriteFile(file, []byte("# Changelog\n\nWords.\n\n## 1.10.0 (2026-12-01)\n\nNew.\n\n### Part\n\n- one\n\n## 1.1.0\n\n- two\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string]string{"1.10.0": "New.\n\n### Part\n\n- one", "1.1.0": "- two"} {
		if got := must(t, root, nil, "tools/package/notes.sh", version, file); got != want {
			t.Errorf("%s: %q, want %q", version, got, want)
		}
	}
	if out, err := run(t, root, nil, "tools/package/notes.sh", "1.2.0", file); err == nil || !strings.Contains(out, `"## 1.2.0"`) {
		t.Errorf("no section: %v, %s", err, out)
	}
}

// A release is of a commit that has a tag, and nothing else.
func TestReleaseRefuses(t *testing.T) {
	for described, want := range map[string]string{"v0.1.0-dirty": "commit them", "a9e4c09e": "no tag", "v0.1.0-3-gabcdef1": "no tag"} {
		out := filepath.Join(t.TempDir(), "release")
		if text, err := run(t, root, []string{"FORCE="}, "tools/package/release.sh", out, described); err == nil || !strings.Contains(text, want) {
			t.Errorf("%s: %v, %s", described, err, text)
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("%s: something was written", described)
		}
	}
}

func TestInstall(t *testing.T) {
	small, to := programs(t), t.TempDir()
	must(t, root, []string{epoch}, "go", "run", "-buildvcs=false", "-trimpath", "-tags", "grpcnotrace", "./tools/manual", filepath.Join(small, "manual"))
	place := []string{"PREFIX=/opt/culvert", "SYSCONFDIR=/opt/etc"}
	for _, part := range []string{"culvert", "culvert-lab"} {
		must(t, root, place, "tools/install.sh", small, part, to)
	}
	unit, err := os.ReadFile(filepath.Join(to, "opt/culvert/lib/systemd/system/culvert.service"))
	if err != nil || !strings.Contains(string(unit), "ExecStart=/opt/culvert/bin/culvert run --config /opt/etc/culvert/culvert.yaml") {
		t.Errorf("%v: %s", err, unit)
	}
	// The operator's configuration survives another installation, and the removal.
	own := filepath.Join(to, "opt/etc/culvert/culvert.yaml")
	if err := os.WriteFile(own, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, root, place, "tools/install.sh", small, "culvert", to)
	must(t, root, place, "tools/uninstall.sh", small, to)
	if left := must(t, to, nil, "find", ".", "-type", "f"); left != "./opt/etc/culvert/culvert.yaml" {
		t.Errorf("left: %s", left)
	}
	if text, err := os.ReadFile(own); err != nil || string(text) != "mine" {
		t.Errorf("the configuration: %q, %v", text, err)
	}
}
