package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A daemon that cannot be as configured says so in place of "ready", and ends where that is
// demanded.
func TestStrict(t *testing.T) {
	n := newNode(t)
	arguments := []string{"run", "--strict", "--config", n.config, "--pin-path", n.pin, "--state", filepath.Join(n.dir, "strict.db")}
	config, err := os.ReadFile(n.config)
	if err != nil {
		t.Fatal(err)
	}
	missing := strings.Replace(string(config), "interfaces: [", "interfaces: [{name: eth7, mode: native, roles: [sr]}, ", 1)
	if err := os.WriteFile(n.config, []byte(missing), 0o600); err != nil {
		t.Fatal(err)
	}
	d := n.start(t)
	d.says(t, "event=daemon.degraded")
	if log := d.log.String(); strings.Contains(log, "event=daemon.ready") || !strings.Contains(log, "eth7") {
		t.Errorf("the log:\n%s", log)
	}
	if err := d.end(t, syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if out, err := n.program(arguments...).CombinedOutput(); err == nil || !strings.Contains(string(out), "not as configured: interfaces: eth7") {
		t.Errorf("strict: %v: %s", err, out)
	}

	// It goes on where it is as configured.
	if err := os.WriteFile(n.config, config, 0o600); err != nil {
		t.Fatal(err)
	}
	d = n.start(t)
	d.says(t, "event=daemon.ready")
	if err := d.end(t, syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	strict := &daemon{cmd: n.program(arguments...), log: &buffer{}, done: make(chan error, 1)}
	strict.cmd.Stderr = strict.log
	if err := strict.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { strict.done <- strict.cmd.Wait() }()
	strict.says(t, "event=daemon.ready")
	if err := strict.end(t, syscall.SIGTERM); err != nil {
		t.Errorf("strict: %v\n%s", err, strict.log)
	}
	n.run(t, "unpin", "--pin-path", n.pin)
}

// Who is not root is told so in one line, before anything is tried.
func TestNobody(t *testing.T) {
	n := newNode(t)
	for args, want := range map[string]string{
		"run --config " + n.config + " --state " + filepath.Join(n.dir, "none.db"): "culvert: culvert run needs CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON: run it as root\n",
		"unpin --pin-path " + n.pin: "culvert: culvert unpin needs CAP_BPF, CAP_NET_ADMIN: run it as root\n",
	} {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := n.ns.Command("setpriv", append([]string{"--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", self}, strings.Fields(args)...)...)
		cmd.Env = append(os.Environ(), asProgram+"=1")
		if out, err := cmd.CombinedOutput(); err == nil || string(out) != want {
			t.Errorf("%s: %v, %q, want %q", args, err, out, want)
		}
	}
	if _, err := os.Stat(n.socket); err == nil {
		t.Error("the daemon listens")
	}
}
